// speech train
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/common/program.h"
#include "apps/speech/commands.h"
#include "apps/speech/train.h"
#include "nn/io/trace_file.h"

namespace cairn::speech {
namespace {

struct TrainCommand : Command {
  TrainCommand()
      : Command("train", "Train a recognizer on prepared data, and keep the best model on dev",
                "Examples:\n"
                "  speech train --quick --data russian.data --out run\n"
                "  speech train --data russian.data --out run --resume\n"
                "  speech train --quick --data russian.data --join 3 --attention i-clustered-100\n\n"
                "Attention variants:\n" +
                    describe_attention_variants()) {}

  void fields(SettingFields& f) override {
    settings.fields(f);
    f("out", out, Text::folder, "save the run in this folder: settings, metrics, checkpoints, report", Keep::no);
    f("resume", resume, "continue the run in --out from its newest checkpoint", Keep::no);
    f("trace", trace, Text::file, "write the times of all operations to this file, for ui.perfetto.dev", Keep::no);
  }

  void run(Communicator& ranks) override {
    if (resume) {
      check<UsageError>(!out.empty(), "--resume: expected --out with the folder of the run to continue");
      continue_run(out);
    }
    const Place place = settings.compute.apply();
    settings.validate(place.device);
    TraceFile trace_file(trace);
    const Corpus data = read_training_data(settings);
    if (resume) check_same_data(out, data, settings.data);
    const bool continues = resume && has_checkpoint(out);  // then it ignores --init-from
    SpeechTask task(settings, place, data, continues ? "" : settings.init_from);
    Artifact folder(out, config(), resume ? Resume::if_there : Resume::no);  // a rejected command creates no folder
    if (out.empty()) note("without --out the trained model is not saved", quiet);
    catch_interrupts(quiet);
    try {
      Json result = train_run(task, folder, quiet, ranks);
      std::string text = result_text(result);
      if (!out.empty()) text += "Report: " + (std::filesystem::path(out) / "report.html").string() + "\n";
      if (!out.empty()) result["out"] = out;
      tell(result, text);
    } catch (const Interrupted&) {
      note(out.empty() ? "Not saved, because --out is missing"
                       : "Saved; continue with: speech train --out " + out + " --resume",
           quiet);
      throw;
    }
    if (const int64_t dropped = trace_file.finish(); dropped > 0)
      note(concat(trace, ": the last ", dropped, " spans are missing"), false);
  }

  Settings settings;
  std::string out, trace;
  bool resume = false;
};

}  // namespace

std::unique_ptr<Command> make_train() { return std::make_unique<TrainCommand>(); }

}  // namespace cairn::speech
