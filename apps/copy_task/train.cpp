#include "apps/copy_task/train.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "apps/common/format.h"
#include "core/trace.h"
#include "nn/optim/r_adam.h"
#include "nn/parallel/data_parallel.h"

namespace cairn::copy_task {
namespace {

// Seconds since it was made, plus `before`: those of earlier sessions.
struct Stopwatch {
  double before = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double operator()() const {
    return before + std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

// The sequences of a step.
Batch load_data(const TrainOptions& options, int64_t step) {
  const trace::Span span("data", "program");
  RandomStream random(options.seed, uint64_t(step), Purpose::data);
  const Batch batch = make_batch(options.batch, options.length, random);
  const Device device = options.compute.device;
  return {batch.input.to(device), batch.target.to(device)};
}

// The mean loss of the sequences [begin, end) of a batch.
Variable forward(const Model& model, const Batch& batch, Generator& generator, int64_t begin, int64_t end) {
  const trace::Span span("forward", "program");
  generator.set_first_example(begin);
  return cross_entropy(model(batch.input.slice(begin, end), {true, &generator}), batch.target.slice(begin, end));
}

// Gives all ranks what rank 0 starts from. Only it keeps a journal.
void share(Communicator& ranks, Optimizer& optimizer, Schedule& schedule, TrainState& state) {
  if (ranks.size() == 1) return;
  ranks.meet();  // it may have read much
  cairn::share(ranks, optimizer);
  std::vector<double> numbers{
      double(state.step),           state.seconds,        state.latest.loss, state.latest.accuracy,
      state.latest.masked_accuracy, double(state.stopped)};
  const size_t own = numbers.size();
  for (const double x : schedule.state()) numbers.push_back(x);
  Tensor all = Tensor::from(numbers, {int64_t(numbers.size())});
  ranks.broadcast(all);
  numbers = all.to_vector<double>();
  state.step = int64_t(numbers[0]), state.seconds = numbers[1], state.stopped = numbers[5] != 0;
  state.latest = {numbers[2], numbers[3], numbers[4]};
  schedule.set_state({numbers.begin() + int64_t(own), numbers.end()});
}

std::string numbers(double loss, const Evaluation& evaluation) {
  if (std::isnan(evaluation.masked_accuracy)) return formatted("loss %.4f", loss);
  return formatted("loss %.4f  masked accuracy %.3f", loss, evaluation.masked_accuracy);
}

constexpr const char* plateau =
    "Unmasked symbols are copied by now; masked ones are still guessed, right about 1 time in 8. This plateau lasts "
    "until the attention finds the other copy, often several hundred steps, and then ends quickly.";

// Trains until the iterations are done, the user interrupts, or masked accuracy reaches stop_at. Records each step, and
// saves checkpoints.
void make_steps(const TrainOptions& options, Model& model, Optimizer& optimizer, Schedule& schedule,
                Generator& generator, Journal& journal, Progress& progress, const Stopwatch& run, TrainState& state,
                Communicator& ranks) {
  DataParallel parallel(ranks, optimizer.parameters(), options.ordered);
  bool explained = !options.explain;
  const auto save = [&] {
    check_shared(ranks, optimizer.parameters());
    journal.save(state);
    ranks.meet();
  };
  while (state.step < options.iterations && !state.stopped && !broadcast_flag(ranks, interrupted())) {
    const trace::Span span("step", "program");
    generator.set_step(uint64_t(state.step));
    const Batch batch = load_data(options, state.step);
    optimizer.clear_gradients();
    const Tensor loss = parallel.backward(
        options.batch, [&](int64_t begin, int64_t end) { return forward(model, batch, generator, begin, end); });
    optimizer.step();
    StepRecord record{++state.step, loss.item()};
    const OptimizerState after = optimizer.state();
    Optimizer::check_diverged(after);
    check<DivergedError>(std::isfinite(record.loss), "training diverged: the loss of step ", state.step, " is ",
                         record.loss, "; try a smaller --lr");
    record.gradient_norm = after.gradient_norm;
    if (state.step % options.evaluate_every == 0) {
      state.latest = evaluate(model, options.length, options.sequences_meanwhile, options.seed,
                              uint64_t(state.step) - 1, false, ranks);
      state.stopped = options.stop_at > 0 && state.latest.masked_accuracy >= options.stop_at;
      record.evaluation = state.latest;
      schedule.observe(options.plateau_metric == "loss" ? state.latest.loss : -state.latest.masked_accuracy);
      optimizer.set_learning_rate(schedule.learning_rate(state.step));
      if (options.schedule == "plateau") record.learning_rate = optimizer.learning_rate();
      if (!explained && !state.stopped && state.latest.on_plateau()) progress.note(plateau), explained = true;
    }
    record.seconds = state.seconds = run();
    journal.record(record);
    progress.update(state.step, numbers(record.loss, state.latest));
    if (options.checkpoint_every > 0 && state.step % options.checkpoint_every == 0) save();
  }
  progress.finish();
  state.seconds = run();
  save();
}

// Evaluates the trained weights, with other variants too. If interrupted, the result is the last evaluation made in
// training, if there was one.
void evaluate_trained(const TrainOptions& options, Model& model, const TrainState& state, Progress& progress,
                      TrainResult& result, Communicator& ranks) {
  const auto stop = [&] { return broadcast_flag(ranks, interrupted()); };
  const auto evaluate_now = [&] {
    return evaluate(model, options.length, options.sequences_after, options.seed, unseen_step, true, ranks);
  };
  result.evaluation = evaluate_now();
  result.sequences = options.sequences_after;
  if (stop()) {
    result.evaluation = state.latest;
    result.sequences = std::isnan(state.latest.loss) ? 0 : options.sequences_meanwhile;
  }
  for (const std::string& spec : options.also_evaluate) {
    if (stop()) break;
    progress.note("evaluating " + spec);
    model.encoder.swap_attention(spec, options.model.attention_defaults);
    const Evaluation evaluation = evaluate_now();
    if (!stop()) result.also.push_back({spec, evaluation});
  }
  result.interrupted = stop();
  check<DivergedError>(result.interrupted || std::isfinite(result.evaluation.loss),
                       "training diverged: the loss of the trained model is ", result.evaluation.loss,
                       "; try a smaller --lr");
}

}  // namespace

TrainResult train(const TrainOptions& options, Progress& progress, const RunFiles* files, Communicator& ranks) {
  Stopwatch run;
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
  Journal journal(files, model, optimizer, *schedule);
  TrainState state = journal.begin(options.iterations);
  share(ranks, optimizer, *schedule, state);
  run.before = state.seconds;  // of earlier sessions

  TrainResult result;
  const Stopwatch training{state.seconds};
  progress.start_at(state.step);
  try {
    make_steps(options, model, optimizer, *schedule, generator, journal, progress, run, state, ranks);
    if (const double seconds = training(); seconds > 0) result.steps_per_second = double(state.step) / seconds;
    evaluate_trained(options, model, state, progress, result, ranks);
  } catch (const DivergedError& error) {
    throw DivergedError(concat(error.what(), journal.saved()));
  }
  result.iterations = state.step, result.parameters = parameter_count(model);
  result.peak_bytes = memory(device).peak, result.seconds = run();
  return result;
}

}  // namespace cairn::copy_task
