#include "apps/common/training.h"

#include "apps/common/format.h"
#include "autograd/tape.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// The numbers after the counter: the loss, and the metrics of the latest evaluation.
std::string numbers(double loss, const Json& metrics) {
  std::string text = formatted("loss %.4f", loss);
  for (const auto& [name, value] : metrics.items())
    if (name != "loss" && value.is_number()) text += formatted("  %s %.3f", name.c_str(), value.get<double>());
  return text;
}

RunFolder opened(const Run& run, const DataRecord& data) {
  if (!run.folder.empty() && has_checkpoint(run.folder)) expect_same(data, run.folder, "choose another --out");
  return {run.folder, run.config};
}

}  // namespace

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
      folder_(opened(run, data)),
      optimizer_(options.make_optimizer(parameters(model))),
      schedule_(options.make_schedule()),
      state_(begin_training(folder_, model, *optimizer_, options.iterations)),
      progress_(options.iterations, run.quiet, state_.step),
      clock_(state_.seconds),
      average_every_(run.ranks.size() > 1 ? options.average_every : 0) {
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
  save_training(folder_, model_, *optimizer_, state_);
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
  if (is_best && options_.keep_best) save_best(folder_, model_, *optimizer_, state_);
  if (!state_.schedule.empty()) line_["learning_rate"] = schedule_->learning_rate(state_.step);
}

void Training::end_step() {
  line_["seconds"] = state_.seconds = clock_.seconds();
  folder_.append(line_);
  progress_.update(state_.step, numbers(line_.at("loss"), state_.metrics));
  line_ = nullptr;
  if (is_due(options_.checkpoint_every, state_.step)) save_training(folder_, model_, *optimizer_, state_);
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
