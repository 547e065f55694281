// copy-task train
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/copy_task/commands.h"
#include "apps/copy_task/results.h"
#include "apps/copy_task/run_report.h"
#include "apps/copy_task/settings.h"
#include "nn/io/json.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

struct Train {
  explicit Train(CLI::App& command_) : command(command_), options(&command_) {
    command.footer(
        "Examples:\n"
        "  copy-task train --quick --out run\n"
        "  copy-task train --out run --resume\n"
        "  copy-task train --attention i-clustered-15 --length 31 --seed 1\n"
        "  copy-task train --quick --also-evaluate full,clustered-15,i-clustered-15\n\n"
        "Attention variants:\n" +
        describe_attention_variants());
    settings.define(options);
    options.add_configuration_options();
    add_path(command, "--out", out, "DIR", "keep the run in this folder: settings, metrics, checkpoints, report");
    command.add_flag("--resume", resume, "continue the run in --out from its newest checkpoint");
    trace.define(command);
    output.define(command);
    command.callback([this] { run(); });
  }

  void run() {
    options.read();
    check<UsageError>(!resume || !out.empty(), "--resume: expected --out with the folder of the run to continue");
    if (!resume) take_settings();  // what is refused leaves no folder behind
    std::unique_ptr<RunFolder> folder;
    std::optional<FoundCheckpoint> found;
    if (!out.empty()) open_run(folder, found);
    if (resume) take_settings();
    settings.train.compute = settings.common.apply();

    catch_interrupts();
    if (found && finished(*found)) return;
    const Json about = {{"program", "copy-task"},
                        {"configuration", options.configuration()},
                        {"provenance", provenance(std::string(name(settings.train.compute.device)))}};
    Progress progress(settings.train.iterations, output.quiet);
    trace.start();
    std::optional<Keep> keep;
    if (folder) keep.emplace(Keep{*folder, about, found ? &*found : nullptr});
    const TrainResult result = train(settings.train, progress, keep ? &*keep : nullptr);
    Json json = result_json(settings.train.model.attention, result);
    if (folder && !result.interrupted) {
      folder->record({{"result", json}});
      folder->sync_metrics();
      write_report(*read_run(out, true), out, folder->path() / "report.html");
    }
    trace.finish(output.quiet);
    json["peak_bytes"] = result.peak_bytes;
    if (settings.train.compute.device == Device::cuda) json["graph_replays"] = result.graph_replays;
    tell(json, result.interrupted);
  }

  void take_settings() {
    options.assign();
    settings.finish();
    settings.train.model.validate();
  }

  // Opens the folder and decides what the run starts from.
  void open_run(std::unique_ptr<RunFolder>& folder, std::optional<FoundCheckpoint>& found) {
    check<DataError>(!resume || std::filesystem::exists(out), "--resume: there is no run in ", out,
                     "; leave --resume out to start one");
    folder = std::make_unique<RunFolder>(out);
    found = find_checkpoint(out);
    if (!found) {
      const auto config = folder->path() / "config.json";
      if (resume && std::filesystem::exists(config)) options.continue_run(read_json(config), config.string());
      check<DataError>(!resume || options.any_given(), "--resume: ", out,
                       " holds no run yet, neither a checkpoint nor a ",
                       "config.json; leave --resume out, or give the run's settings with it");
      if (resume) note(out + ": no checkpoint yet, the run starts from the beginning", output.quiet);
      return;
    }
    check<UsageError>(resume, "--out ", out, ": the folder holds a run; continue it with --resume, or choose another ",
                      "folder");
    for (const std::string& damaged : found->passed_over) note(damaged, output.quiet);
    train_state(*found);
    options.continue_run(found->about->at("configuration"), found->folder.string() + "/checkpoint.json");
  }

  // Has the run nothing left to do? Then its result is told again, and nothing changes.
  bool finished(const FoundCheckpoint& found) {
    const auto records = read_metrics(out);
    const TrainState state = train_state(found);
    const bool done = state.stopped || state.step >= settings.train.iterations;
    if (!done || records.empty() || !records.back().contains("result")) return false;
    const Json& result = records.back().at("result");
    if (!is_result(result) || result.at("iterations") != state.step) return false;
    if (const std::string report = out + "/report.html"; !std::filesystem::exists(report))
      write_report(*read_run(out, true), out, report);
    note(out + ": this run is finished; more --iterations would continue it", output.quiet);
    tell(result, false);
    return true;
  }

  void tell(Json result, bool interrupted) {
    if (output.json) {
      result["length"] = settings.train.length;
      result["seed"] = settings.train.seed;
      if (!out.empty()) result["out"] = out;
      if (interrupted) result["interrupted"] = true;
      print(result.dump() + "\n");
    } else {
      print(result_text(result, interrupted));
      if (!out.empty() && !interrupted) print("Report: " + out + "/report.html\n");
    }
    if (interrupted) {
      if (!out.empty()) note("Saved; continue with: copy-task train --out " + out + " --resume", output.quiet);
      throw CLI::RuntimeError(exit_interrupted);
    }
  }

  CLI::App& command;
  Settings settings;
  Options options;
  OutputOptions output;
  TraceOption trace;
  std::string out;
  bool resume = false;
};

}  // namespace

void define_train(CLI::App& app) {
  static std::unique_ptr<Train> command;
  command = std::make_unique<Train>(*app.add_subcommand("train", "Train on fresh sequences, then evaluate"));
}

}  // namespace cairn::copy_task
