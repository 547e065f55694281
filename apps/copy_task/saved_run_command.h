#pragma once
// What the commands share that read a run.
#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/copy_task/saved_run.h"
#include "core/parallel.h"

namespace cairn::copy_task {

// The run, and settings that are no run's.
struct SavedRunCommand {
  SavedRunCommand(CLI::App& app, const char* name, const char* summary, const std::string& footer,
                  const char* run_help = "the run's folder")
      : called(name), command(add_command(app, name, summary, footer)), options(&command) {
    add_path(command, "--run", run, "DIR", run_help);
  }
  virtual ~SavedRunCommand() = default;

  // Behind the options of its own.
  void define_common(bool needs_run = true) {
    define_threads(options, threads);
    output.define(command);
    on_run(command, [this, needs_run] {
      check<UsageError>(!run.empty() || !needs_run, "expected --run with the folder of a run; see copy-task ", called,
                        " --help");
      options.read();
      options.assign();
      if (threads > 0) set_threads(int(threads));
      execute();
    });
  }
  virtual void execute() = 0;

  // Reads the run, with another variant if one is named.
  std::unique_ptr<Trained> read(const std::string& attention = "") const {
    auto trained = read_run(run);
    if (!attention.empty()) trained->swap_attention(attention);
    return trained;
  }

  const char* called;
  CLI::App& command;
  Options options;
  OutputOptions output;
  std::string run;
  int64_t threads = 0;
};

}  // namespace cairn::copy_task
