#include "apps/common/training.h"

#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/common/format.h"
#include "autograd/tape.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// The numbers after the counter: the loss, and the metrics of the latest evaluation.
std::string numbers(double loss, const Json& metrics) {
  std::string text = formatted("loss %.4f", loss);
  for (const auto& [name, value] : metrics.items())
    if (name != "loss" && value.is_number()) text += formatted("  %s %.3f", name.c_str(), value.get<double>());
  return text;
}

// The device, and on the CPU its vectors: what the bits of a run depend on.
std::string computed_on(const Json& provenance) {
  const std::string device = provenance.at("device");
  return device == "cpu" ? concat("the CPU with ", provenance.at("vectors").get<std::string>()) : device;
}

Json provenance_of(Module& model) { return provenance(parameters(model).front().value().device()); }

// All but `saved` to JSON, in which infinity is null, and back. Error (Json::exception): the JSON has another form.
Json progress_of(const TrainState& state) {
  return {{"step", state.step},        {"seconds", state.seconds},           {"latest", state.metrics},
          {"stopped", state.ended},    {"best", finite_or_null(state.best)}, {"since_best", state.since_best},
          {"schedule", state.schedule}};
}
TrainState state_from(const Json& progress) {
  const auto number = [](const Json& value) { return value.is_null() ? INFINITY : value.get<double>(); };
  TrainState state;
  state.step = progress.at("step");
  state.seconds = progress.at("seconds");
  state.metrics = progress.at("latest");
  state.ended = progress.at("stopped");
  state.best = number(progress.at("best"));
  state.since_best = progress.at("since_best");
  for (const Json& value : progress.at("schedule")) state.schedule.push_back(number(value));
  return state;
}

}  // namespace

// ---- checkpoints of a run

std::optional<FoundCheckpoint> newest_checkpoint(const fs::path& run) try {
  std::optional<FoundCheckpoint> found = find_checkpoint(run);
  if (found && !found->damage.empty())  // also with --quiet, for it changes the result
    note(concat(found->damage, "; the checkpoint of step ", state_of(*found).step, " in ", found->folder, " is used"),
         false);
  return found;
} catch (const DataError& error) {
  throw DataError(concat(error.what(), "; restore a copy of it, or train again with --config ", run / "config.json",
                         " --out ANOTHER"));
}

FoundCheckpoint checkpoint_of(const char* option, const fs::path& run) {
  auto found = newest_checkpoint(has_checkpoint(run / "best") ? run / "best" : run);
  check<DataError>(found.has_value(), option, " ", run, ": the folder holds no checkpoint of a run");
  return std::move(*found);
}

void initialize(Module& model, const fs::path& run) {
  const FoundCheckpoint checkpoint = checkpoint_of("--init-from", run);
  try {
    restore(checkpoint, model, nullptr);
  } catch (const DataError& error) {
    throw DataError(concat("--init-from: ", error.what(), "; give the options of the run that made these weights"));
  }
}

TrainState state_of(const FoundCheckpoint& checkpoint) try {
  const Json& about = *checkpoint.about;
  check<DataError>(about.at("program") == program(), checkpoint.folder, ": the checkpoint of another program");
  return state_from(about.at("progress"));
} catch (const Json::exception&) {
  throw DataError(concat(checkpoint.folder, ": not the checkpoint of a run of ", program()));
}

// ---- a training

// Refuses what cannot go on before anything is written, config.json too.
static RunFolder opened(const Run& run, const TrainingOptions& options, const DataRecord& data) {
  if (!run.folder.empty() && has_checkpoint(run.folder)) {
    expect_same(data, run.folder, "choose another --out");
    const int64_t step = state_of(*newest_checkpoint(run.folder)).step;
    check<UsageError>(step <= options.iterations, "--iterations ", options.iterations, ": the run has made ", step,
                      " steps already");
  }
  return {run.folder, run.config};
}

void expect_same(const DataRecord& data, const std::filesystem::path& run, const char* remedy) {
  const std::filesystem::path path = run / data.file;
  const Json before = data.file.empty() ? Json::object() : read_optional_object(path);
  for (const auto& [key, value] : data.computed.items())
    check<DataError>(before.value(key, value) == value, data.source,
                     ": is not the data that the run began with: ", path, " has another ", in_quotes(key),
                     "; restore it, or ", remedy);
}

Training::Training(const Run& run, const TrainingOptions& options, Module& model, const DataRecord& data)
    : options_(options),
      model_(model),
      ranks_(run.ranks),
      trace_(run.trace),
      folder_(opened(run, options, data)),
      optimizer_(options.make_optimizer(parameters(model))),
      schedule_(options.make_schedule()),
      state_(begun()),
      progress_(options.iterations, run.quiet, state_.step),
      clock_(state_.seconds),
      average_every_(ranks_.size() > 1 ? options.average_every : 0) {
  if (!data.file.empty()) folder_.write(data.file, data.computed.dump(2) + "\n");
  if (run.folder.empty()) note("without --out the trained model is not saved", run.quiet);
  if (ranks_.rank() == 0) catch_interrupts(run.quiet);
  if (state_.step > 0) note(concat(folder_.folder(), ": continuing from step ", state_.step), run.quiet);
  if (ranks_.size() > 1) {
    const std::string progress = of_rank_0(ranks_, progress_of(state_).dump());
    if (ranks_.rank() > 0) state_ = state_from(Json::parse(progress));
    broadcast_weights(*optimizer_, ranks_);
  }
  if (state_.step == 0) state_.schedule = schedule_->state();
  schedule_->set_state(state_.schedule);
  if (options.check_finite) finite_.emplace(named_parameters(model));
  reset_peak_memory(parameters(model).front().value().device());
}

// Continues from the newest checkpoint of the run, if there is one.
TrainState Training::begun() try {
  TrainState state;
  if (!keeps()) return state;
  if (const auto found = find_checkpoint(folder_.folder())) {  // opened() has told what is damaged
    state = state_of(*found);
    state.saved = state.step;
    folder_.lines();  // reports damage before training starts
    restore(*found, model_, optimizer_.get());
    if (!found->damage.empty()) {  // otherwise the next save keeps the damaged one and drops this one
      std::error_code error;
      fs::remove_all(folder_ / "checkpoint", error);
      check(!error, folder_ / "checkpoint", ": is damaged, and cannot be removed: ", error);
    }
    const std::string was = computed_on(found->about->at("provenance")), is = computed_on(provenance_of(model_));
    if (was != is)  // also with --quiet, for it changes the result
      note(concat(folder_.folder(), ": was trained on ", was, " and continues on ", is,
                  ", which rounds differently: the bits are not those of a run that never stopped"),
           false);
  }
  folder_.keep_lines(state.step);
  return state;
} catch (const Json::exception&) {
  throw DataError(concat(folder_.folder(), ": the provenance in its checkpoint is damaged"));
}

// Writes a checkpoint into the folder, which is the run's or lies in it.
void Training::save_to(const fs::path& folder) {
  const trace::Span span("checkpoint", "program");
  folder_.sync();
  save_checkpoint(folder, model_, *optimizer_,
                  {{"program", program()}, {"provenance", provenance_of(model_)}, {"progress", progress_of(state_)}});
}

// Saves a checkpoint, unless there is one of this step.
void Training::save() {
  if (!keeps() || state_.saved == state_.step) return;
  save_to(folder_.folder());
  state_.saved = state_.step;
}

bool Training::goes_on() {
  // Between two averages, processes have different weights. Then nothing is evaluated or saved, and training goes on.
  if (average_every_ > 0 && !is_due(average_every_, state_.step)) return true;
  return state_.step < options_.iterations && !state_.ended && !of_rank_0(ranks_, interrupted());
}

bool Training::next() {
  check(!span_, "training: next() was called in a step without learn(); call learn() once in each step");
  if (!line_.is_null()) end_step();
  if (goes_on()) {
    span_.emplace("step", "program");
    weight_ = 1 / double(ranks_.size());
    optimizer_->set_learning_rate(schedule_->learning_rate(state_.step));
    optimizer_->clear_gradients();
    return true;
  }
  finite_.reset();
  progress_.finish();
  state_.seconds = clock_.seconds();
  save();
  return false;
}

Share Training::share(int64_t examples) {
  const Share mine = share_of(examples, ranks_);
  weight_ = mine.weight;
  return mine;
}

void Training::learn(const Variable& loss) {
  check(span_.has_value(), "training: learn() was called outside a step; call next() before it, and learn() once");
  if (loss.defined()) backward(loss, average_every_ > 0 ? 1 : weight_);
  if (average_every_ == 0) sum_gradients(optimizer_->parameters(), ranks_);
  optimizer_->step();
  ++state_.step;
  if (is_due(average_every_, state_.step)) average_weights(*optimizer_, ranks_);
  const double mean = sum(ranks_, loss.defined() ? weight_ * loss.value().item() : 0);
  const OptimizerState after = optimizer_->state();
  Optimizer::check_diverged(after);
  check<DivergedError>(std::isfinite(mean), "training diverged: the loss of step ", state_.step, " is ", mean,
                       "; try a smaller --lr");
  line_ = {{"step", state_.step}, {"loss", mean}, {"gradient_norm", finite_or_null(after.gradient_norm)}};
  span_.reset();
}

void Training::evaluate(const std::function<Evaluation()>& f) {
  check(!line_.is_null(), "training: evaluate() was called before learn(); call it at the end of a step");
  if (!is_due(options_.evaluate_every, state_.step)) return;
  Evaluation found;
  if (ranks_.rank() == 0) found = f();
  if (!found.note.empty()) progress_.note(found.note);
  line_["evaluation"] = state_.metrics = found.metrics;
  const double score = of_rank_0(ranks_, found.score);
  schedule_->observe(score);
  state_.schedule = schedule_->state();
  const bool is_best = score < state_.best;
  state_.best = is_best ? score : state_.best;
  state_.since_best = is_best ? 0 : state_.since_best + 1;
  state_.ended = of_rank_0(ranks_, found.solved) || (options_.patience > 0 && state_.since_best >= options_.patience);
  if (is_best && options_.keep_best && keeps()) save_to(folder_ / "best");
  if (!state_.schedule.empty()) line_["learning_rate"] = schedule_->learning_rate(state_.step);
}

void Training::end_step() {
  line_["seconds"] = state_.seconds = clock_.seconds();
  folder_.append(line_);
  progress_.update(state_.step, numbers(line_.at("loss"), state_.metrics));
  line_ = nullptr;
  if (is_due(options_.checkpoint_every, state_.step)) save();
}

Json Training::result(const std::function<Json()>& f) {
  check(!span_ && line_.is_null(), "training: result() was called in the loop; call next() until it returns false");
  // A run that was killed may have a best model that is newer than its training state. Then the model stays.
  Json best_step;
  const auto best = options_.keep_best && keeps() ? newest_checkpoint(folder_ / "best") : std::nullopt;
  if (best && state_of(*best).step <= state_.step) {
    restore(*best, model_, nullptr);
    best_step = state_of(*best).step;
  }
  if (!state_.ended && state_.step < options_.iterations) return {};  // interrupted
  // Rank 0 alone has the result of a finished run. An old one may be of fewer steps.
  Json before = folder_.result();
  if (!before.is_null() && before.at("iterations") != state_.step) before = nullptr;
  before = Json::parse(of_rank_0(ranks_, before.dump()));
  is_new_ = before.is_null();
  if (!is_new_) return before;
  std::string evaluated;
  if (ranks_.rank() == 0) try {
      evaluated = f().dump();
    } catch (const Interrupted&) {
    }
  evaluated = of_rank_0(ranks_, evaluated);
  if (of_rank_0(ranks_, interrupted())) return {};
  Json result = Json::parse(evaluated);
  check<DivergedError>(!result.at("loss").is_null(),
                       "training diverged: the loss of the trained model is not finite; try a smaller --lr");
  if (options_.keep_best) result["best_step"] = best_step;
  result.update({{"iterations", state_.step},
                 {"stopped", state_.ended},
                 {"seconds", clock_.seconds()},
                 {"steps_per_second", state_.seconds > 0 ? double(state_.step) / state_.seconds : 0},
                 {"parameters", parameter_count(model_)},
                 {"peak_bytes", memory(parameters(model_).front().value().device()).peak}});
  return result;
}

Json Training::finish(const Json& result) {
  if (result.is_null()) throw Interrupted();
  if (is_new_) folder_.write_result(result);
  if (const int64_t dropped = trace_.finish(); dropped > 0)
    note(concat("--trace: the last ", dropped, " spans are missing"), false);
  return result;
}

}  // namespace cairn
