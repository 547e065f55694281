#include "apps/copy_task/train.h"

#include <chrono>
#include <cmath>
#include <memory>

#include "apps/common/format.h"
#include "core/captured_step.h"
#include "core/trace.h"
#include "nn/optim/r_adam.h"

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

// Copies the sequences of a step to where the model reads them.
void load_data(const TrainOptions& options, int64_t step, Batch& batch) {
  const trace::Span span("data", "program");
  RandomStream random(options.seed, uint64_t(step), Purpose::data);
  const Batch fresh = make_batch(options.batch, options.length, random);
  batch.input.copy_from(fresh.input);
  batch.target.copy_from(fresh.target);
}

Variable forward(const Model& model, const Batch& batch, const Generator& generator) {
  const trace::Span span("forward", "program");
  return cross_entropy(model(batch.input, {true, &generator}), batch.target);
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
                TrainResult& result) {
  const Device device = options.compute.device;
  // A step reads its sequences and leaves its loss in memory that stays, so that CUDA can replay it as a graph.
  const Shape shape{options.batch, sequence_length(options.length)};
  Batch batch{Tensor(shape, DType::int32, device), Tensor(shape, DType::int32, device)};
  Tensor loss;
  CapturedStep learn(device, [&] {
    optimizer.clear_gradients();
    const Variable mean = forward(model, batch, generator);
    backward(mean);
    optimizer.step();
    loss = mean.value();
  });
  double replaying = 0;  // seconds of the replayed steps but the first, without evaluations and saves
  bool explained = !options.explain;
  while (state.step < options.iterations && !state.stopped && !interrupted()) {
    const trace::Span span("step", "program");
    const Stopwatch step;
    const bool replayed = learn.replays() > 0;
    generator.set_step(uint64_t(state.step));
    load_data(options, state.step, batch);
    learn();
    StepRecord record{++state.step, loss.item()};
    const OptimizerState after = optimizer.state();
    if (replayed) replaying += step();
    Optimizer::check_diverged(after);
    check<DivergedError>(std::isfinite(record.loss), "training diverged: the loss of step ", state.step, " is ",
                         record.loss, "; try a smaller --lr");
    record.gradient_norm = after.gradient_norm;
    if (state.step % options.evaluate_every == 0) {
      state.latest =
          evaluate(model, options.length, options.sequences_meanwhile, options.seed, uint64_t(state.step) - 1);
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
    if (options.checkpoint_every > 0 && state.step % options.checkpoint_every == 0) journal.save(state);
  }
  progress.finish();
  state.seconds = run();
  journal.save(state);
  result.graph_replays = learn.replays();
  if (replaying > 0) result.replayed_steps_per_second = double(result.graph_replays - 1) / replaying;
}

// Evaluates the trained weights, with other variants too. If interrupted, the result is the last evaluation made in
// training, if there was one.
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

TrainResult train(const TrainOptions& options, Progress& progress, const RunFiles* files) {
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
  run.before = state.seconds;  // of earlier sessions

  TrainResult result;
  const Stopwatch training{state.seconds};
  progress.start_at(state.step);
  try {
    make_steps(options, model, optimizer, *schedule, generator, journal, progress, run, state, result);
    if (const double seconds = training(); seconds > 0) result.steps_per_second = double(state.step) / seconds;
    evaluate_trained(options, model, state, progress, result);
  } catch (const DivergedError& error) {
    throw DivergedError(concat(error.what(), journal.saved()));
  }
  result.iterations = state.step, result.parameters = parameter_count(model);
  result.peak_bytes = memory(device).peak, result.seconds = run();
  return result;
}

}  // namespace cairn::copy_task
