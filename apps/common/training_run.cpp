#include "apps/common/training_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/common/format.h"
#include "nn/attention/attention.h"
#include "nn/io/json.h"

namespace cairn {

namespace fs = std::filesystem;

static std::string training_text(const Json& result) {
  const int64_t steps = result.at("iterations");
  const double bytes = result.at("peak_bytes");
  return concat(steps, " step", steps == 1 ? "" : "s", " in ", clock_time(result.at("seconds")), " (",
                formatted("%.1f", result.at("steps_per_second").get<double>()), " steps/s), ",
                result.at("parameters").get<int64_t>(), " parameters, peak memory ", formatted("%.0f MB", bytes / 1e6),
                "\n");
}

void run_training(CommandLine& line, const std::string& examples, const std::function<Json(const Run&)>& train,
                  const std::function<std::string(const Json&)>& text_of) {
  std::string out, trace;
  bool resume = false;
  line("out", out, Text::folder, "save the run in this folder: settings, metrics, checkpoints, report",
       Keep::not_in_config);
  line("resume", resume, "continue the run in --out from its newest checkpoint", Keep::not_in_config);
  line("trace", trace, Text::file, "write the times of all operations to this file, for ui.perfetto.dev",
       Keep::not_in_config);
  line.footer(concat("Examples:\n", examples, "\n\nAttention variants:\n", describe_attention_variants()));
  line.parse();
  const bool is_first = processes().rank() == 0;
  if (is_first && resume) {
    check<UsageError>(!out.empty(), "--resume: expected --out with the folder of the run to continue");
    line.continue_run(out);
  }
  const std::string settings_of_rank_0 = of_rank_0(processes(), printed(line.config()));  // rank 0 alone opens files
  if (!is_first) {  // then there is no --out and no --trace: rank 0 alone keeps the run, and is interrupted
    line.assign(Json::parse(settings_of_rank_0));
    line.quiet = true;
    ignore_interrupts();
  }
  if (!out.empty() && !resume) RunFolder::expect_new(out);
  try {
    Json result = trained({out, line.config(), line.quiet, trace}, train);
    std::string text = training_text(result) + text_of(result);
    if (!out.empty()) {
      text += "Report: " + (fs::path(out) / "report.html").string() + "\n";
      result["out"] = out;
    }
    line.tell(result, text);
  } catch (const Json::exception&) {
    if (!resume) throw;
    throw damaged(fs::path(out) / "result.json");
  } catch (const Interrupted&) {
    note(out.empty() ? "Not saved, because --out is missing"
                     : concat("Saved; continue with: ", program(), " train --out ", out, " --resume"),
         line.quiet);
    throw;
  }
}

Json trained(const Run& run, const std::function<Json(const Run&)>& train) try {
  return train(run);
} catch (const DivergedError& error) {
  const bool is_named = run.config.value("check_finite", false);
  const auto saved = run.folder.empty() ? std::nullopt : find_checkpoint(run.folder);
  throw DivergedError(concat(error.what(), is_named ? "" : "; --check-finite names the operation",
                             saved
                                 ? concat("; the checkpoint of step ", state_of(*saved).step, " is in ", saved->folder)
                                 : "; nothing was saved"));
}

FoundCheckpoint open_run(const char* option, const std::string& folder, SettingFields& settings) {
  check<UsageError>(!folder.empty(), "expected ", option, " with the folder of a run");
  read_run(settings, option, folder);
  return checkpoint_of(option, folder);
}

std::string evaluated_model(const Json& result) {
  const Json& step = result.at("best_step");
  return step.is_null() ? "last model" : concat("best model, of step ", step.get<int64_t>());
}

}  // namespace cairn
