// copy-task train
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/common/program.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/train.h"
#include "nn/io/trace_file.h"

namespace cairn::copy_task {
namespace {

struct TrainCommand : Command {
  TrainCommand()
      : Command("train", "Train on fresh sequences, then evaluate",
                "Examples:\n"
                "  copy-task train --quick --out run\n"
                "  copy-task train --out run --resume\n"
                "  copy-task train --attention i-clustered-15 --length 31 --seed 1\n"
                "  copy-task train --config run/config.json --init-from run --seed 2 --lr 1e-5 \\\n"
                "    --attention i-clustered-30 --stop-at 0 --out tuned     fine-tune with more clusters\n\n"
                "Attention variants:\n" +
                    describe_attention_variants()) {
    many_processes = true;
  }

  void fields(SettingFields& f) override {
    settings.fields(f);
    f("out", out, Text::folder, "save the run in this folder: settings, metrics, checkpoints, report", Keep::no);
    f("resume", resume, "continue the run in --out from its newest checkpoint", Keep::no);
    f("trace", trace, Text::file, "write the times of all operations to this file, for ui.perfetto.dev", Keep::no);
  }

  void run(Communicator& ranks) override {
    const bool is_first = ranks.rank() == 0;
    if (is_first && resume) {
      check<UsageError>(!out.empty(), "--resume: expected --out with the folder of the run to continue");
      continue_run(out);
    }
    // The others take the settings of rank 0, which alone reports, keeps the run and is interrupted.
    const std::string settings_of_rank_0 = of_rank_0(ranks, config().dump());
    if (!is_first) follow(Json::parse(settings_of_rank_0));
    const Place place = settings.compute.apply();
    settings.training.validate(settings.model, place.device);
    check<UsageError>(settings.training.average_every == 0 || settings.batch >= ranks.size(),
                      "--average-every: expected a --batch with at least one sequence for each of the ", ranks.size(),
                      " processes, got ", settings.batch);
    if (!is_first) {
      ignore_interrupts();
      CopyTask task(settings, place, "", false);
      Artifact nowhere({}, {}, Resume::no);
      train_run(task, nowhere, true, ranks);
      return;
    }
    TraceFile trace_file(trace);
    // A rejected command creates no folder. A run that continues ignores --init-from.
    const bool continues = resume && has_checkpoint(out);
    CopyTask task(settings, place, continues ? "" : settings.init_from, true);
    Artifact folder(out, config(), resume ? Resume::if_there : Resume::no);
    tell_before(folder);
    catch_interrupts(quiet);
    try {
      tell_result(train_run(task, folder, quiet, ranks));
    } catch (const Interrupted&) {
      note(out.empty() ? "Not saved, because --out is missing"
                       : "Saved; continue with: copy-task train --out " + out + " --resume",
           quiet);
      throw;
    }
    if (const int64_t dropped = trace_file.finish(); dropped > 0)
      note(concat(trace, ": the last ", dropped, " spans are missing"), false);
  }

  void tell_before(const Artifact& folder) const {
    const TransformerOptions model = settings.transformer();
    const int64_t n = sequence_length(settings.length);
    if (out.empty()) note("without --out the trained model is not saved", quiet);
    if (masked_per_half(settings.length) == 0)
      note(concat("with --length ", settings.length, " nothing is masked, so there is no masked accuracy"), quiet);
    note_if_full(*make_attention(model.attention, model.attention_defaults), n, n, quiet);
    if (const auto result = folder.result(); result && is_finished(*result, settings))
      note(concat(out, ": this run is finished: it ",
                  result->at("stopped").get<bool>() ? "reached --stop-at"
                                                    : "has made all its steps; larger --iterations continue it"),
           quiet);
  }

  void tell_result(Json result) const {
    std::string text = result_text(result);
    if (!out.empty()) text += "Report: " + (std::filesystem::path(out) / "report.html").string() + "\n";
    result.update({{"length", settings.length}, {"seed", settings.compute.seed}});
    if (!out.empty()) result["out"] = out;
    tell(result, text);
  }

  Settings settings;
  std::string out, trace;
  bool resume = false;
};

}  // namespace

std::unique_ptr<Command> make_train() { return std::make_unique<TrainCommand>(); }

}  // namespace cairn::copy_task
