#include "apps/common/training_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "core/parallel.h"
#include "nn/attention/attention.h"
#include "nn/io/json.h"
#include "nn/io/trace_file.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// Gives the model the weights of the run's best/, and returns their step. A run that was killed may have some that are
// newer than its training state; then, or if there are none, the model stays, and the step is null.
Json load_best(const RunFolder& run, Module& model, int64_t last_step) {
  const auto best = newest_checkpoint(run / "best");
  if (!best || state_of(*best).step > last_step) return {};
  restore(*best, model, nullptr);
  return state_of(*best).step;
}

// The metrics of the trained model, the same on all ranks, and the time and memory of the training.
Json result_of(RunTask& task, const TrainState& state, const Json& best_step, Communicator& ranks) {
  const Stopwatch clock(state.seconds);
  const std::string evaluated = of_rank_0(ranks, ranks.rank() == 0 ? task.final_evaluation().dump() : "");
  if (of_rank_0(ranks, interrupted())) throw Interrupted();
  Json result = Json::parse(evaluated);
  check<DivergedError>(!result.at("loss").is_null(),
                       "training diverged: the loss of the trained model is not finite; try a smaller --lr");
  if (task.options().keep_best) result["best_step"] = best_step;
  const std::vector<Variable> weights = parameters(task.model());
  result.update({{"iterations", state.step},
                 {"stopped", state.ended},
                 {"seconds", clock.seconds()},
                 {"steps_per_second", state.seconds > 0 ? double(state.step) / state.seconds : 0},
                 {"parameters", parameter_count(task.model())},
                 {"peak_bytes", memory(weights.front().value().device()).peak}});
  return result;
}

std::string result_text(const RunTask& task, const Json& result) {
  const int64_t steps = result.at("iterations");
  const double bytes = result.at("peak_bytes");
  return concat(steps, " step", steps == 1 ? "" : "s", " in ", clock_time(result.at("seconds")), " (",
                formatted("%.1f", result.at("steps_per_second").get<double>()), " steps/s), ",
                result.at("parameters").get<int64_t>(), " parameters, peak memory ", formatted("%.0f MB", bytes / 1e6),
                "\n", task.metrics_text(result));
}

// Error (UsageError): a new run would replace files of the folder.
void check_new(const std::filesystem::path& folder) {
  for (const char* name : {"config.json", "metrics.jsonl", "result.json", "checkpoint", "report.html"})
    check<UsageError>(!is_there(folder / name), "--out ", folder, ": the folder has a ", name,
                      RunFolder::is_in(folder) ? "; continue the run with --resume, or" : ";",
                      " choose another folder");
}

// Error (DataError): the run in the folder began with other data.
void check_data(const RunTask::Data& data, const std::filesystem::path& folder) {
  const auto path = folder / data.file;
  if (data.file.empty() || !is_there(path)) return;
  const Json before = read_json(path);
  for (const auto& [key, value] : before.items())
    check<DataError>(data.computed.value(key, Json()) == value, data.source,
                     ": is not the data that the run began with: ", path, " has another ", in_quotes(key),
                     "; restore it, or choose another --out");
}

}  // namespace

Json train_run(RunTask& task, RunFolder& run, bool quiet, Communicator& ranks) {
  const TrainingOptions& options = task.options();
  if (const RunTask::Data data = task.data(); !data.file.empty()) run.write(data.file, data.computed.dump(2) + "\n");
  reset_peak_memory(parameters(task.model()).front().value().device());
  const TrainState state = train(task, options, run, quiet, ranks);
  const bool is_over = state.ended || state.step == options.iterations;
  const Json best_step = options.keep_best && run.keeps() ? load_best(run, task.model(), state.step) : Json();
  Json result = run.result();
  // An old result may be of fewer steps. Rank 0 alone has it.
  const bool is_new = of_rank_0(ranks, result.is_null() || result.at("iterations") != state.step);
  const auto write_report = [&](const Json& of) {
    const NoGrad no_grad;
    if (run.keeps()) task.write_report(run, state, of);
  };
  try {
    if (!is_over) throw Interrupted();
    if (is_new) result = result_of(task, state, best_step, ranks);
  } catch (const Interrupted&) {
    write_report({});
    throw;
  }
  write_report(result);
  if (is_new) run.write_result(result);  // last, when nothing is left to do
  return result;
}

std::string evaluated_model(const Json& result) {
  const Json& step = result.at("best_step");
  return step.is_null() ? "last model" : concat("best model, of step ", step.get<int64_t>());
}

TrainCommand::TrainCommand(const char* summary, const std::string& examples)
    : Command("train", summary,
              concat("Examples:\n", examples, "\n\nAttention variants:\n", describe_attention_variants())) {}

void TrainCommand::fields(SettingFields& f) {
  f("out", out, Text::folder, "save the run in this folder: settings, metrics, checkpoints, report",
    Keep::not_in_config);
  f("resume", resume, "continue the run in --out from its newest checkpoint", Keep::not_in_config);
  f("trace", trace, Text::file, "write the times of all operations to this file, for ui.perfetto.dev",
    Keep::not_in_config);
}

void TrainCommand::run(Communicator& ranks) {
  const bool is_first = ranks.rank() == 0;
  if (is_first && resume) {
    check<UsageError>(!out.empty(), "--resume: expected --out with the folder of the run to continue");
    continue_run(out);
  }
  const std::string settings_of_rank_0 = of_rank_0(ranks, printed(config()));  // rank 0 alone opens files
  if (!is_first) {  // without --out and --trace: rank 0 alone keeps the run, reports it, and is interrupted
    follow(Json::parse(settings_of_rank_0));
    quiet = true;
    ignore_interrupts();
  }
  const bool continues = resume && has_checkpoint(out);  // then it ignores --init-from
  const std::unique_ptr<RunTask> task = make_task(is_first && !continues, ranks);
  if (continues) check_data(task->data(), out);
  TraceFile trace_file(trace);
  if (!out.empty() && !resume) check_new(out);
  RunFolder folder(out, config());  // a rejected command creates no folder
  if (out.empty()) note("without --out the trained model is not saved", quiet);
  if (is_first) catch_interrupts(quiet);
  try {
    Json result = train_run(*task, folder, quiet, ranks);
    std::string text = result_text(*task, result);
    if (!out.empty()) {
      text += "Report: " + (std::filesystem::path(out) / "report.html").string() + "\n";
      result["out"] = out;
    }
    tell(result, text);
  } catch (const Json::exception&) {
    if (!resume) throw;
    throw damaged(folder / "result.json");
  } catch (const Interrupted&) {
    note(out.empty() ? "Not saved, because --out is missing"
                     : concat("Saved; continue with: ", program(), " train --out ", out, " --resume"),
         quiet);
    throw;
  }
  if (const int64_t dropped = trace_file.finish(); dropped > 0)
    note(concat(trace, ": the last ", dropped, " spans are missing"), false);
}

void RunToRead::fields(SettingFields& f, const std::string& help) {
  f("run", folder, Text::folder, help, Keep::not_in_config);
  threads_field(f, threads);
}

FoundCheckpoint RunToRead::find(SettingFields& settings) {
  check<UsageError>(!folder.empty(), "expected ", option, " with the folder of a run");
  if (threads > 0) set_threads(int(threads));
  read_run(settings, option, folder);
  FoundCheckpoint checkpoint = checkpoint_of(option, folder);
  step = state_of(checkpoint).step;
  return checkpoint;
}

}  // namespace cairn
