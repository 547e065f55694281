#include "apps/copy_task/train.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/copy_task/report_page.h"
#include "apps/copy_task/run.h"
#include "core/trace.h"

namespace cairn::copy_task {

using Json = nlohmann::ordered_json;

// ---- the task

CopyTask::CopyTask(const Settings& settings, const Place& place, const std::string& from, bool explain)
    : settings_(settings),
      place_(place),
      generator_(uint64_t(settings.compute.seed)),
      model_(settings.transformer(), sequence_length(settings.length), generator_),
      explain_(explain) {
  if (!from.empty()) initialize(model_, from);
  model_.place(place.device, place.activations);
}

int64_t CopyTask::load(int64_t step) {
  const trace::Span span("data", "program");
  RandomStream random(uint64_t(settings_.compute.seed), uint64_t(step), Purpose::data, training_data);
  const Batch batch = make_batch(settings_.batch, settings_.length, random);
  batch_ = {batch.input.to(place_.device), batch.target.to(place_.device)};
  generator_.set_step(uint64_t(step));
  return settings_.batch;
}

Variable CopyTask::loss(int64_t begin, int64_t end) {
  const trace::Span span("forward", "program");
  generator_.set_first_example(begin);
  const Variable logits = model_(batch_.input.slice(begin, end), {.training = true, .generator = &generator_});
  return cross_entropy(logits, batch_.target.slice(begin, end));
}

Evaluation CopyTask::evaluate(int64_t step) {
  constexpr int64_t sequences = 256;
  const Metrics found =
      copy_task::evaluate(model_, settings_.length, sequences, uint64_t(settings_.compute.seed), uint64_t(step) - 1);
  Evaluation evaluation{as_json(found), found.loss, settings_.stop_at > 0 && found.masked_accuracy >= settings_.stop_at,
                        ""};
  if (explain_ && !evaluation.solved && found.on_plateau()) {
    evaluation.note =
        "The model now copies unmasked symbols and still guesses masked ones (about 1 in 8 right). This plateau often "
        "lasts several hundred steps. It ends quickly when the attention finds the other copy.";
    explain_ = false;
  }
  return evaluation;
}

// ---- a run

namespace {

// Evaluates the trained weights, which are saved. Throws Interrupted if the user has asked to stop.
Metrics evaluate_trained(const Settings& settings, const Model& model, Communicator& ranks) {
  Metrics found;
  if (ranks.rank() == 0)
    found = evaluate(model, settings.length, final_sequences, uint64_t(settings.compute.seed), unseen_step, true);
  found = of_rank_0(ranks, found);
  if (of_rank_0(ranks, interrupted())) throw Interrupted();
  check<DivergedError>(std::isfinite(found.loss), "training diverged: the loss of the trained model is ", found.loss,
                       "; try a smaller --lr");
  return found;
}

// The accuracy of the trained model, and the time and memory of its training.
Json result_of(CopyTask& task, const TrainState& state, Communicator& ranks) {
  const Stopwatch clock(state.seconds);
  Json result = {{"attention", task.settings().model.attention}};
  result.update(as_json(evaluate_trained(task.settings(), task.model(), ranks)));
  result.update({{"sequences", final_sequences},
                 {"iterations", state.step},
                 {"stopped", state.ended},
                 {"seconds", clock.seconds()},
                 {"steps_per_second", state.seconds > 0 ? double(state.step) / state.seconds : 0},
                 {"parameters", parameter_count(task.model())},
                 {"peak_bytes", memory(task.device()).peak}});
  return result;
}

}  // namespace

Json train_run(CopyTask& task, Artifact& run, bool quiet, Communicator& ranks) {
  const Settings& settings = task.settings();
  reset_peak_memory(task.device());
  const TrainState state = train(task, settings.training, run, quiet, ranks);
  const bool is_over = state.ended || state.step == settings.training.iterations;
  Json result = run.result().value_or(Json());
  // An old result may be of fewer steps. Rank 0 alone has it.
  const bool is_new = of_rank_0(ranks, result.is_null() || result.at("iterations") != state.step);
  try {
    if (!is_over) throw Interrupted();
    if (is_new) result = result_of(task, state, ranks);
  } catch (const Interrupted&) {
    write_report(run, settings, task.model(), state, {});
    throw;
  }
  write_report(run, settings, task.model(), state, result);
  if (is_new) run.write_result(result);  // last, when nothing is left to do
  return result;
}

bool is_finished(const Json& result, const Settings& settings) {
  const int64_t steps = result.at("iterations"), most = settings.training.iterations;
  return result.at("stopped").get<bool>() ? steps <= most : steps == most;
}

std::string result_text(const Json& result) {
  const int64_t steps = result.at("iterations"), sequences = result.at("sequences");
  const double bytes = result.at("peak_bytes");
  return concat(steps, " step", steps == 1 ? "" : "s", " in ", clock_time(result.at("seconds")), " (",
                formatted("%.1f", result.at("steps_per_second").get<double>()), " steps/s), ",
                result.at("parameters").get<int64_t>(), " parameters, ", "peak memory ",
                bytes < 1e6 ? formatted("%.0f kB", bytes / 1e3) : formatted("%.0f MB", bytes / 1e6), "\nOn ", sequences,
                " fresh sequences:\n", metrics_text(result));
}

}  // namespace cairn::copy_task
