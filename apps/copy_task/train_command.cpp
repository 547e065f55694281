// copy-task train
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/copy_task/commands.h"
#include "apps/copy_task/result_format.h"
#include "apps/copy_task/saved_run.h"
#include "nn/io/json.h"

namespace cairn::copy_task {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct TrainCommand {
  explicit TrainCommand(CLI::App& app)
      : command(add_command(app, "train", "Train on fresh sequences, then evaluate",
                            "Examples:\n"
                            "  copy-task train --quick --out run\n"
                            "  copy-task train --out run --resume\n"
                            "  copy-task train --attention i-clustered-15 --length 31 --seed 1\n"
                            "  copy-task train --config run/config.json --init-from run --seed 2 --lr 1e-5 \\\n"
                            "    --attention i-clustered-30 --stop-at 0 --out tuned     fine-tunes, more clusters\n\n"
                            "Attention variants:\n" +
                                describe_attention_variants())),
        options(&command) {
    settings.define(options);
    options.add_configuration_options();
    add_path(command, "--out", out, "DIR", "keep the run in this folder: settings, metrics, checkpoints, report");
    add_flag(command, "--resume", resume, "continue the run in --out from its newest checkpoint");
    trace.define(command);
    output.define(command);
    on_run(command, [this](Communicator& ranks) { execute(ranks); });
  }

  void execute(Communicator& ranks) {
    processes = ranks.size();
    const bool first = ranks.rank() == 0;
    if (first) prepare();
    const bool nothing_left = found && finished();
    // The others take rank 0's settings; only it looks into the run's folder.
    const std::string configuration = of_rank_0(ranks, options.configuration().dump());
    if (of_rank_0(ranks, nothing_left)) return;
    if (!first) follow(configuration);
    if (found) check_resumed(out, *found, settings.train);
    if (found) note(concat(out, ": continues from step ", train_state(*found).step), output.quiet);
    if (masked_per_half(settings.train.length) == 0)
      note(concat("with --length ", settings.train.length, " nothing is masked: there will be no masked accuracy"),
           output.quiet);
    const TransformerOptions& model = settings.train.model;
    const int64_t n = sequence_length(settings.train.length);
    note_if_full(*make_attention(model.attention, model.attention_defaults), n, n, output.quiet);
    TrainResult result;
    trace.start();
    try {
      result = train_run(options, settings.train, folder.get(), found, output.quiet, ranks);
    } catch (const DivergedError&) {
      trace.finish(output.quiet);
      throw;
    } catch (const Interrupted&) {
      trace.finish(output.quiet);
      note(out.empty() ? "Not saved: no --out"
                       : "Saved; continue with: copy-task train --out " + shell_word(out) + " --resume",
           output.quiet);
      throw;
    }
    Json json = result_json(settings.train.model.attention, result);
    if (folder) finish_run(*folder, json);
    trace.finish(output.quiet);
    json["peak_bytes"] = result.peak_bytes;
    tell(json);
  }

  // Reads the settings, and opens the run's folder if there is one.
  void prepare() {
    options.read();
    check<UsageError>(!resume || !out.empty(), "--resume: expected --out with the folder of the run to continue");
    if (!resume) take_settings(false);  // what is refused leaves nothing behind
    if (!out.empty()) open_run();
    if (resume) take_settings(true);
    catch_interrupts(output.quiet);
  }

  // Takes the settings of rank 0, which alone reports, keeps the run and is interrupted.
  void follow(const std::string& configuration) {
    options.load(Json::parse(configuration), "rank 0");
    options.assign();
    settings.finish();
    settings.train.compute = settings.common.apply();
    check_options(settings.train);
    output.quiet = true;
    trace = {};
    ignore_interrupts();
  }

  // What was given becomes the settings, if they make sense. Those of a run come from its own files.
  void take_settings(bool of_run) {
    const auto settle = [&](auto&& f) { of_run ? of_a_run(f) : f(); };
    settle([&] {
      options.assign();
      settings.finish();
    });
    settings.train.compute = settings.common.apply();
    if (!settings.init_from.empty() && !found)
      settings.train.init_from =
          std::make_shared<const FoundCheckpoint>(checkpoint_of_run("--init-from", settings.init_from));
    settle([&] { check_options(settings.train); });
    check<UsageError>(settings.train.average_every == 0 || settings.train.batch >= processes,
                      "--average-every: expected a --batch with at least one sequence for each of the ", processes,
                      " processes, got ", settings.train.batch);
    trace.try_file();
  }

  // Opens the folder and decides what the run starts from.
  void open_run() {
    const fs::path run = out, config = run / "config.json";
    if (!is_there(run / "checkpoint") && !is_there(run / "checkpoint.previous")) check_start(run);
    folder = std::make_unique<RunFolder>(run);
    found = find_checkpoint_of(run, true);
    if (found) {
      check<UsageError>(resume, "--out ", out, ": the folder holds a run; continue it with --resume, or choose ",
                        "another folder");
      train_state(*found);
      options.continue_run(found->about->at("configuration"), (found->folder / "checkpoint.json").string());
    } else if (resume) {
      if (is_there(config)) options.continue_run(read_json(config), config.string());
      note(out + ": no checkpoint yet, the run starts from the beginning", output.quiet);
    }
  }

  // May a run start in this folder, where nothing was saved? Files that it would replace must be those of a run that
  // was stopped before its first save, and only --resume says that they are.
  void check_start(const fs::path& run) const {
    check<DataError>(!resume || is_there(run), "--resume: there is no run in ", out,
                     "; leave --resume out to start one");
    const std::string mine = run_file_in(run);
    if (mine.empty()) {
      check<DataError>(!resume || options.any_given() || find_checkpoint(run), "--resume: ", out,
                       " holds no run yet, neither a checkpoint nor a config.json; leave --resume out, or give the ",
                       "run's settings with it");
      return;
    }
    if (find_checkpoint(run)) return;  // a save that was stopped behind its last write
    check<UsageError>(!resume || mine == "config.json", "--out ", out, ": the folder has a ", mine,
                      ", but neither a checkpoint nor a config.json; choose another folder");
    check<UsageError>(resume, "--out ", out, ": the folder has a ", mine,
                      ", but no checkpoint; choose another folder, ", "or --resume to start the run in it again");
  }

  // Has the run nothing left to do? Then its result is told and its report written again, and nothing changes.
  bool finished() {
    const std::optional<Json> result = finished_result(out, *found, settings.train.iterations);
    if (!result) return false;
    const TrainState state = train_state(*found);
    write_report(*folder, *result);
    note(concat(out, ": this run is finished: it ",
                state.stopped
                    ? concat("reached --stop-at ", settings.train.stop_at, " at step ", state.step,
                             "; to go beyond, start another with --config ",
                             shell_word((fs::path(out) / "config.json").string()), " --set stop_at=0 --out ANOTHER")
                    : concat("made its ", state.step, " steps; more --iterations would continue it")),
         output.quiet);
    trace.nothing_ran(output.quiet);
    tell(*result);
    return true;
  }

  void tell(Json result) {
    if (output.json) {
      result["length"] = settings.train.length;
      result["seed"] = settings.train.seed;
      if (!out.empty()) result["out"] = out;
      print(result.dump() + "\n");
    } else {
      print(result_text(result));
      if (!out.empty()) print("Report: " + (fs::path(out) / "report.html").string() + "\n");
    }
  }

  CLI::App& command;
  Settings settings;
  Options options;
  OutputOptions output;
  TraceOption trace;
  std::string out;
  bool resume = false;
  int processes = 1;

  std::unique_ptr<RunFolder> folder;     // null: nothing is kept
  std::optional<FoundCheckpoint> found;  // none: starts afresh
};

}  // namespace

void define_train(CLI::App& app) { define_command<TrainCommand>(app); }

}  // namespace cairn::copy_task
