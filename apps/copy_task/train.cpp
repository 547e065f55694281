#include "apps/copy_task/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/options.h"
#include "core/captured_step.h"
#include "core/trace.h"
#include "nn/optim/r_adam.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Refuses, before anything is allocated, a model that cannot fit: each parameter has a gradient and two moments.
void check_memory(const TransformerOptions& model, Device device) {
  const double f = double(model.features()), hidden = double(model.feed_forward);
  const double bytes = 4 * sizeof(float) * double(model.layers) * (4 * f * f + 2 * f * hidden);
  const double available = double(available_memory(device));
  const auto gigabytes = [](double size) { return formatted("%.1f GB", size / 1e9); };
  check<DeviceError>(bytes <= available, "out of memory on ", name(device),
                     ": the parameters, their gradients and moments need ", gigabytes(bytes), ", ",
                     device == Device::cpu ? "this process may have " : "the device has free ", gigabytes(available),
                     "; reduce --layers, --heads, --head-size or --feed-forward");
}

// Refuses, before training, a variant that could not be evaluated after it: tried on weights as few as can be.
void check_variants(const TrainOptions& options) {
  if (options.also_evaluate.empty()) return;
  TransformerOptions smallest = options.model;
  smallest.layers = smallest.heads = smallest.head_size = smallest.feed_forward = 1;
  Generator generator(0);
  Encoder encoder(smallest, generator);
  for (const std::string& spec : options.also_evaluate) try {
      encoder.swap_attention(spec, options.model.attention_defaults);
    } catch (const UsageError& error) {
      throw UsageError(concat("--also-evaluate: ", error.what()));
    }
}

std::unique_ptr<Schedule> make_schedule(const TrainOptions& options) {
  std::unique_ptr<Schedule> schedule;
  about_option("--schedule " + options.schedule, [&] {
    if (options.schedule == "plateau")
      schedule = std::make_unique<DropOnPlateau>(options.learning_rate, options.plateau);
    else
      schedule = std::make_unique<Constant>(options.learning_rate);
  });
  return schedule;
}

// Error (DataError): weights of another model.
void initialize(Model& model, const FoundCheckpoint& from) try {
  restore(from, model, nullptr);
} catch (const DataError& error) {
  throw DataError(concat("--init-from: ", error.what(), "; give the options of the run that made these weights"));
}

std::string numbers(double loss, const Evaluation& evaluation) {
  if (std::isnan(evaluation.masked_accuracy)) return formatted("loss %.4f", loss);
  return formatted("loss %.4f  masked accuracy %.3f", loss, evaluation.masked_accuracy);
}

// Keeps a run in its folder; without one, it does nothing.
class Journal {
 public:
  Journal(const Keep* keep, Model& model, Optimizer& optimizer, Schedule& schedule)
      : keep_(keep), model_(model), optimizer_(optimizer), schedule_(schedule) {}

  // Begins the run in its folder, or continues it where its checkpoint was saved. Nothing is changed before all of the
  // checkpoint is known to fit.
  TrainState begin(int64_t iterations) {
    TrainState state;
    if (!keep_) return state;
    if (keep_->from) {
      state = train_state(*keep_->from);
      check<UsageError>(state.step <= iterations, "--iterations ", iterations, ": the run has made ", state.step,
                        " steps already");
      try {
        schedule_.set_state(state.schedule);
      } catch (const DataError& error) {
        throw DataError(concat(keep_->from->folder / "checkpoint.json", ": ", error.what()));
      }
      restore(*keep_->from, model_, &optimizer_);
      adopt(*keep_->from);
      saved_ = state.step;
    }
    keep_->folder.remove("report.html");  // of a run that was shorter
    keep_->folder.write("config.json", keep_->about.at("configuration").dump(2) + "\n");
    if (!keep_->folder.cut_metrics(state.metrics_bytes))
      // Also with --quiet, for it changes the report.
      note(concat(keep_->folder.path() / "metrics.jsonl", ": some records of the first ", state.step,
                  " steps are lost; the run goes on without them"),
           false);
    return state;
  }

  void record(const Json& line) {
    if (keep_) keep_->folder.record(line);
  }

  void save(const TrainState& state, double seconds) {
    if (!keep_ || saved_ == state.step) return;
    const trace::Span span("checkpoint", "program");
    Json about = keep_->about;
    about["progress"] = {{"step", state.step},
                         {"seconds", seconds},
                         {"latest", as_json(state.latest)},
                         {"stopped", state.stopped},
                         {"metrics_bytes", keep_->folder.sync_metrics()}};
    for (const double value : schedule_.state()) about["progress"]["schedule"].push_back(number(value));
    save_checkpoint(keep_->folder.path(), model_, optimizer_, about);
    saved_ = state.step;
  }

  // For the end of a message: what there is to go back to.
  std::string saved() const {
    if (!keep_) return "";
    if (saved_ < 0) return "; nothing was saved before";
    return concat("; the checkpoint of step ", saved_, " is in ", (keep_->folder.path() / "checkpoint").string());
  }

 private:
  const Keep* keep_;
  Model& model_;
  Optimizer& optimizer_;
  Schedule& schedule_;
  int64_t saved_ = -1;  // the step of the newest checkpoint
};

Batch step_data(const TrainOptions& options, int64_t step) {
  const trace::Span span("data", "program");
  RandomStream random(options.seed, uint64_t(step), Purpose::data);
  return make_batch(options.batch, options.length, random);
}

// The loss, and the gradients of all parameters.
Tensor forward_and_backward(const Model& model, const Batch& batch, const Generator& generator) {
  Variable loss;
  {
    const trace::Span span("forward", "program");
    loss = cross_entropy(model(batch.input, {true, &generator}), batch.target);
  }
  backward(loss);
  return loss.value();
}

// Memory that recorded steps of so many sequences take.
int64_t bytes_of_steps(Model& model, TrainOptions options, int64_t sequences, const Generator& generator) {
  const Device device = options.compute.device;
  for (Variable& parameter : parameters(model)) parameter.clear_grad();
  const int64_t before = int64_t(available_memory(device));
  options.batch = sequences;
  const Batch batch = step_data(options, 0), on_device{batch.input.to(device), batch.target.to(device)};
  CapturedStep step(
      device, [&] { forward_and_backward(model, on_device, generator); }, 1);
  step();
  step();
  return before - int64_t(available_memory(device));
}

// How many sequences a step may have, from what steps of some and of twice as many take: what to say when memory ran
// out.
std::string batch_that_fits(Model& model, const TrainOptions& options, const Generator& generator) {
  for (int64_t some = std::max<int64_t>(1, options.batch / 16); some > 0; some /= 4) try {
      const int64_t one = bytes_of_steps(model, options, some, generator);
      const int64_t each = std::max<int64_t>(1, bytes_of_steps(model, options, 2 * some, generator) - one) / some;
      for (Variable& parameter : parameters(model)) parameter.clear_grad();
      const int64_t more = (int64_t(available_memory(options.compute.device)) - one) / std::max<int64_t>(1, each);
      return concat("about --batch ", std::min(options.batch - 1, some + std::max<int64_t>(0, more)), " would fit");
    } catch (const OutOfMemory&) {
    }
  return "not even --batch 2 fits; reduce --layers, --heads, --head-size, --feed-forward or --length";
}

// A step in which the parameters change, and how it went.
void learn_from(CapturedStep& learn, Model& model, const TrainOptions& options, const Generator& generator) try {
  learn();
} catch (const OutOfMemory& error) {
  if (options.compute.device == Device::cpu) throw;
  throw OutOfMemory(concat(error.what(), "; ", batch_that_fits(model, options, generator)));
}

constexpr const char* plateau =
    "Unmasked symbols are copied by now; masked ones are still guessed, right about 1 time in 8. This plateau lasts "
    "until the attention finds the other copy, often several hundred steps, and then ends quickly.";

// The steps that were replayed as a CUDA graph, and the seconds of those after the first, without evaluations and
// saves.
struct Replays {
  int64_t count = 0;
  double seconds = 0;
};

// Makes the steps that are left, until the user or the figures stop it; records and saves them.
Replays make_steps(const TrainOptions& options, Model& model, Optimizer& optimizer, Schedule& schedule,
                   Generator& generator, Journal& journal, Progress& progress, TrainState& state,
                   const std::function<double()>& seconds) {
  const Device device = options.compute.device;
  // A step reads its sequences and leaves its loss in memory that stays, so that CUDA can replay it.
  const Shape shape{options.batch, sequence_length(options.length)};
  Batch on_device{Tensor(shape, DType::int32, device), Tensor(shape, DType::int32, device)};
  Tensor loss;
  CapturedStep learn(device, [&] {
    optimizer.clear_gradients();
    loss = forward_and_backward(model, on_device, generator);
    optimizer.step();
  });
  double replaying = 0;
  bool explained = !options.explain;
  while (state.step < options.iterations && !state.stopped && !interrupted()) {
    const trace::Span span("step", "program");
    const auto begun = std::chrono::steady_clock::now();
    const bool replayed = learn.replays() > 0;
    generator.set_step(uint64_t(state.step));
    const Batch batch = step_data(options, state.step);
    on_device.input.copy_from(batch.input);
    on_device.target.copy_from(batch.target);
    learn_from(learn, model, options, generator);
    const double value = loss.item();
    const OptimizerState after = optimizer.state();
    if (replayed) replaying += since(begun);
    Optimizer::check_diverged(after);
    const int64_t step = ++state.step;
    check<DivergedError>(std::isfinite(value), "training diverged: the loss of step ", step, " is ", value,
                         "; try a smaller --lr");
    Json line = {{"step", step}, {"loss", value}, {"gradient_norm", number(after.gradient_norm)}};
    if (step % options.evaluate_every == 0) {
      state.latest = evaluate(model, options.length, options.sequences_meanwhile, options.seed, uint64_t(step) - 1);
      state.stopped = options.stop_at > 0 && state.latest.masked_accuracy >= options.stop_at;
      line["evaluation"] = as_json(state.latest);
      schedule.observe(options.plateau_metric == "loss" ? state.latest.loss : -state.latest.masked_accuracy);
      optimizer.set_learning_rate(schedule.learning_rate(step));
      if (options.schedule == "plateau") line["learning_rate"] = optimizer.learning_rate();
      if (!explained && !state.stopped && state.latest.accuracy > 0.8 && state.latest.masked_accuracy < 0.3) {
        progress.note(plateau);
        explained = true;
      }
    }
    line["seconds"] = seconds();
    journal.record(line);
    progress.update(step, numbers(value, state.latest));
    if (options.checkpoint_every > 0 && step % options.checkpoint_every == 0) journal.save(state, seconds());
  }
  progress.finish();
  journal.save(state, seconds());
  return {learn.replays(), replaying};
}

// Evaluates the trained weights, with other variants too. What an interruption leaves unfinished is no result: then
// the last evaluation in training stands in, if there was one.
void evaluate_trained(const TrainOptions& options, Model& model, const TrainState& state, Progress& progress,
                      TrainResult& result) {
  const auto evaluate_now = [&] {
    return evaluate(model, options.length, options.sequences_after, options.seed, unseen_step, true);
  };
  result.evaluation = evaluate_now();
  result.sequences = options.sequences_after;
  if (interrupted()) {
    result.evaluation = state.latest;
    result.sequences = std::isnan(state.latest.loss) ? 0 : options.sequences_meanwhile;
  }
  for (const std::string& spec : options.also_evaluate) {
    if (interrupted()) break;
    progress.note("evaluating " + spec);
    model.encoder.swap_attention(spec, options.model.attention_defaults);
    const Evaluation evaluation = evaluate_now();
    if (!interrupted()) result.also.push_back({spec, evaluation});
  }
  result.interrupted = interrupted();
  check<DivergedError>(result.interrupted || std::isfinite(result.evaluation.loss),
                       "training diverged: the loss of the trained model is ", result.evaluation.loss,
                       "; try a smaller --lr");
}

}  // namespace

void check_options(const TrainOptions& options) {
  options.model.validate();
  check_memory(options.model, options.compute.device);
  check_variants(options);
  make_schedule(options);
  if (options.init_from) {
    Generator generator(options.seed);
    Model model(options.model, 1, generator);
    initialize(model, *options.init_from);
  }
}

TrainResult train(const TrainOptions& options, Progress& progress, const Keep* keep) {
  const auto start = std::chrono::steady_clock::now();
  const Device device = options.compute.device;
  reset_peak_memory(device);
  check_options(options);
  Generator generator(options.seed, device);
  Model model(options.model, sequence_length(options.length), generator);
  model.place(device, options.compute.activations);
  if (options.init_from) initialize(model, *options.init_from);
  RAdam optimizer(parameters(model), options.learning_rate, {.weight_decay = options.weight_decay});
  optimizer.set_max_gradient_norm(options.clip);
  const std::unique_ptr<Schedule> schedule = make_schedule(options);
  Journal journal(keep, model, optimizer, *schedule);
  TrainState state = journal.begin(options.iterations);

  TrainResult result;
  result.parameters = parameter_count(model);
  const double before = state.seconds;  // of earlier sessions
  const auto training_start = std::chrono::steady_clock::now();
  progress.start_at(state.step);
  try {
    const Replays replays = make_steps(options, model, optimizer, *schedule, generator, journal, progress, state,
                                       [&] { return before + since(start); });
    result.graph_replays = replays.count;
    if (replays.seconds > 0) result.replayed_steps_per_second = double(replays.count - 1) / replays.seconds;
    const double training = before + since(training_start);
    result.iterations = state.step;
    result.steps_per_second = training > 0 ? double(state.step) / training : 0;
    evaluate_trained(options, model, state, progress, result);
  } catch (const DivergedError& error) {
    throw DivergedError(concat(error.what(), journal.saved()));
  }
  result.peak_bytes = memory(device).peak;
  result.seconds = before + since(start);
  return result;
}

TrainState train_state(const FoundCheckpoint& checkpoint) {
  const std::string where = checkpoint.folder.string() + "/checkpoint.json";
  try {
    const Json &about = *checkpoint.about, &at = about.at("progress");
    check<DataError>(about.at("program") == "copy-task", where, ": the checkpoint of another program");
    check<DataError>(about.at("configuration").is_object() && about.at("provenance").is_object(), where,
                     ": expected the run's configuration and provenance as objects");
    check<DataError>(at.at("step").is_number_unsigned() && at.at("step").get<uint64_t>() <= max_steps &&
                         at.at("metrics_bytes").is_number_unsigned() &&
                         at.at("metrics_bytes").get<uint64_t>() <= uint64_t(1) << 60 && at.at("seconds").is_number() &&
                         at.at("seconds") >= 0,
                     where, ": impossible numbers in \"progress\"");
    TrainState state{at.at("step"),    at.at("seconds"),       evaluation_from(at.at("latest")),
                     at.at("stopped"), at.at("metrics_bytes"), {}};
    // Of a plateau before its first evaluation the best is infinite, which JSON cannot hold.
    for (const Json& value : at.value("schedule", Json::array()))
      state.schedule.push_back(value.is_null() ? INFINITY : value.get<double>());
    return state;
  } catch (const Json::exception&) {
    throw DataError(where + ": not that of a copy-task run");
  }
}

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

nlohmann::ordered_json as_json(const Evaluation& e) {
  return {{"loss", number(e.loss)}, {"accuracy", number(e.accuracy)}, {"masked_accuracy", number(e.masked_accuracy)}};
}

Evaluation evaluation_from(const nlohmann::ordered_json& json) {
  const auto value = [&](const char* key) { return json.at(key).is_null() ? NAN : json.at(key).get<double>(); };
  return {value("loss"), value("accuracy"), value("masked_accuracy")};
}

}  // namespace cairn::copy_task
