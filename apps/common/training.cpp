#include "apps/common/training.h"

#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "autograd/check_finite.h"
#include "autograd/tape.h"
#include "core/trace.h"
#include "nn/parallel/data_parallel.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// The numbers after the counter: the loss, and the metrics of the latest evaluation.
std::string numbers(double loss, const Json& metrics) {
  std::string text = formatted("loss %.4f", loss);
  for (const auto& [name, value] : metrics.items())
    if (name != "loss" && value.is_number()) text += formatted("  %s %.3f", name.c_str(), value.get<double>());
  return text;
}

// Gives all ranks the state that rank 0 has read.
void broadcast(TrainState& state, Optimizer& optimizer, Communicator& ranks) {
  if (ranks.size() == 1) return;
  const std::string progress = of_rank_0(ranks, progress_of(state).dump());
  if (ranks.rank() > 0) state = state_from(Json::parse(progress));
  broadcast_weights(optimizer, ranks);
}

// One step on this process's share of the examples; returns the mean loss over all shares. With --average-every, ranks
// share no gradients.
double take_step(Task& task, Optimizer& optimizer, int64_t average_every, TrainState& state, Communicator& ranks) {
  const trace::Span span("step", "program");
  const Share mine = share_of(task.load(state.step), ranks);
  optimizer.clear_gradients();
  Variable loss;  // without examples there is none
  if (mine.size() > 0) {
    loss = task.loss(mine.begin, mine.end);
    backward(loss, average_every > 0 ? 1 : mine.weight);
  }
  if (average_every == 0) sum_gradients(optimizer.parameters(), ranks);
  optimizer.step();
  ++state.step;
  if (is_due(average_every, state.step)) average_weights(optimizer, ranks);
  return sum(ranks, mine.size() > 0 ? mine.weight * loss.value().item() : 0);
}

// Evaluates on rank 0, and updates the state on all ranks. Returns whether this is the best score so far.
bool evaluate(Task& task, const TrainingOptions& options, TrainState& state, Schedule& schedule, Progress& progress,
              Communicator& ranks) {
  Evaluation found;
  if (ranks.rank() == 0) found = task.evaluate(state.step);
  if (!found.note.empty()) progress.note(found.note);
  state.metrics = found.metrics;
  const double score = of_rank_0(ranks, found.score);
  schedule.observe(score);
  state.schedule = schedule.state();
  const bool is_best = score < state.best;
  state.best = is_best ? score : state.best;
  state.since_best = is_best ? 0 : state.since_best + 1;
  state.ended = of_rank_0(ranks, found.solved) || (options.patience > 0 && state.since_best >= options.patience);
  return is_best;
}

// The line of metrics.jsonl for a step. Error (DivergedError): its loss or its gradient is not finite.
Json record_of(const TrainState& state, double loss, const OptimizerState& after) {
  Optimizer::check_diverged(after);
  check<DivergedError>(std::isfinite(loss), "training diverged: the loss of step ", state.step, " is ", loss,
                       "; try a smaller --lr");
  return {{"step", state.step}, {"loss", loss}, {"gradient_norm", finite_or_null(after.gradient_norm)}};
}

}  // namespace

TrainState train(Task& task, const TrainingOptions& options, RunFolder& run, bool quiet, Communicator& ranks) {
  const std::unique_ptr<Optimizer> made = options.make_optimizer(parameters(task.model()));
  Optimizer& optimizer = *made;
  const std::unique_ptr<Schedule> schedule = options.make_schedule();
  TrainState state = begin_training(run, task.model(), optimizer, options.iterations);
  if (state.step > 0) note(concat(run.folder(), ": continuing from step ", state.step), quiet);
  broadcast(state, optimizer, ranks);
  if (state.step == 0) state.schedule = schedule->state();
  schedule->set_state(state.schedule);
  optimizer.set_learning_rate(schedule->learning_rate(state.step));
  // Between two averages, processes have different weights. Then nothing is evaluated or saved, and training goes on.
  const int64_t average_every = ranks.size() > 1 ? options.average_every : 0;
  const auto goes_on = [&] {
    if (average_every > 0 && !is_due(average_every, state.step)) return true;
    return state.step < options.iterations && !state.ended && !of_rank_0(ranks, interrupted());
  };
  std::optional<CheckFinite> finite;
  if (options.check_finite) finite.emplace(named_parameters(task.model()));
  Progress progress(options.iterations, quiet, state.step);
  const Stopwatch clock(state.seconds);
  try {
    while (goes_on()) {
      const double loss = take_step(task, optimizer, average_every, state, ranks);
      Json line = record_of(state, loss, optimizer.state());
      if (is_due(options.evaluate_every, state.step)) {
        const bool is_best = evaluate(task, options, state, *schedule, progress, ranks);
        if (is_best && options.keep_best) save_best(run, task.model(), optimizer, state);
        line["evaluation"] = state.metrics;
        if (!state.schedule.empty()) line["learning_rate"] = schedule->learning_rate(state.step);
      }
      optimizer.set_learning_rate(schedule->learning_rate(state.step));
      line["seconds"] = state.seconds = clock.seconds();
      run.append(line);
      progress.update(state.step, numbers(loss, state.metrics));
      if (is_due(options.checkpoint_every, state.step)) save_training(run, task.model(), optimizer, state);
    }
    progress.finish();
    state.seconds = clock.seconds();
    save_training(run, task.model(), optimizer, state);
  } catch (const DivergedError& error) {
    const char* const hint = finite ? "" : "; --check-finite names the operation";
    const auto saved = concat("; the checkpoint of step ", state.saved, " is in ", run / "checkpoint");
    throw DivergedError(concat(error.what(), hint, state.saved < 0 ? "; nothing was saved" : saved));
  }
  return state;
}

}  // namespace cairn
