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
  // Between two averagings ranks have weights of their own; then nothing is evaluated or saved, and nobody stops.
  const int64_t average_every = ranks.size() > 1 ? options.average_every : 0;
  const Share mine = share_of(options.batch, ranks);
  bool explained = !options.explain;
  const auto goes_on = [&] {
    if (average_every > 0 && state.step % average_every != 0) return true;
    return state.step < options.iterations && !state.stopped && !of_rank_0(ranks, interrupted());
  };
  while (goes_on()) {
    const trace::Span span("step", "program");
    generator.set_step(uint64_t(state.step));
    const Batch batch = load_data(options, state.step);
    optimizer.clear_gradients();
    Variable loss;  // of this rank's part; without one there is none
    if (mine.size() > 0) {
      loss = forward(model, batch, generator, mine.begin, mine.end);
      backward(loss, average_every > 0 ? 1 : mine.weight);
    }
    if (average_every == 0) sum_gradients(optimizer.parameters(), ranks);
    optimizer.step();
    ++state.step;
    if (average_every > 0 && state.step % average_every == 0) average_weights(optimizer, ranks);
    StepRecord record{state.step, sum(ranks, mine.size() > 0 ? mine.weight * loss.value().item() : 0)};
    const OptimizerState after = optimizer.state();
    Optimizer::check_diverged(after);
    check<DivergedError>(std::isfinite(record.loss), "training diverged: the loss of step ", state.step, " is ",
                         record.loss, "; try a smaller --lr");
    record.gradient_norm = after.gradient_norm;
    if (state.step % options.evaluate_every == 0) {
      if (ranks.rank() == 0)
        state.latest =
            evaluate(model, options.length, options.sequences_meanwhile, options.seed, uint64_t(state.step) - 1);
      state.latest = of_rank_0(ranks, state.latest);
      state.stopped = options.stop_at > 0 && state.latest.masked_accuracy >= options.stop_at;
      record.evaluation = state.latest;
      schedule.observe(state.latest.loss);
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
}

// Evaluates the trained weights, which are saved. Throws Interrupted where the user has asked to stop.
Evaluation evaluate_trained(const TrainOptions& options, const Model& model, Communicator& ranks) {
  const auto end_if_interrupted = [&] {
    if (of_rank_0(ranks, interrupted())) throw Interrupted();
  };
  end_if_interrupted();
  Evaluation evaluation;
  if (ranks.rank() == 0)
    evaluation = evaluate(model, options.length, options.sequences_after, options.seed, unseen_step, true);
  evaluation = of_rank_0(ranks, evaluation);
  end_if_interrupted();
  check<DivergedError>(std::isfinite(evaluation.loss), "training diverged: the loss of the trained model is ",
                       evaluation.loss, "; try a smaller --lr");
  return evaluation;
}

}  // namespace

TrainResult train(const TrainOptions& options, Progress& progress, const RunFiles* files, Communicator& ranks) {
  Stopwatch run;
  const Device device = options.compute.device;
  reset_peak_memory(device);
  check_options(options);
  Generator generator(options.seed);
  Model model(options.model, sequence_length(options.length), generator);
  model.place(device, options.compute.activations);
  if (options.init_from) initialize(model, *options.init_from);
  RAdam optimizer(parameters(model), options.learning_rate, {.weight_decay = options.weight_decay});
  optimizer.set_max_gradient_norm(options.clip);
  const std::unique_ptr<Schedule> schedule = make_schedule(options);
  Journal journal(files, model, optimizer, *schedule);
  TrainState state = journal.begin(options.iterations);
  // The others begin with what rank 0 has read. Only its state is recorded and saved.
  state.step = of_rank_0(ranks, state.step);
  state.stopped = of_rank_0(ranks, state.stopped);
  std::vector<double> observed = schedule->state();
  for (double& number : observed) number = of_rank_0(ranks, number);
  schedule->set_state(observed);
  broadcast_weights(optimizer, ranks);
  run.before = state.seconds;  // of earlier sessions

  TrainResult result;
  const Stopwatch training{state.seconds};
  progress.start_at(state.step);
  try {
    make_steps(options, model, optimizer, *schedule, generator, journal, progress, run, state, ranks);
    if (const double seconds = training(); seconds > 0) result.steps_per_second = double(state.step) / seconds;
    result.evaluation = evaluate_trained(options, model, ranks);
  } catch (const DivergedError& error) {
    throw DivergedError(concat(error.what(), journal.saved()));
  }
  result.sequences = options.sequences_after, result.iterations = state.step;
  result.parameters = parameter_count(model);
  result.peak_bytes = memory(device).peak, result.seconds = run();
  return result;
}

}  // namespace cairn::copy_task
