#pragma once
// What the commands share that read a run, and how all commands come to be.
#include <memory>

#include "apps/copy_task/settings.h"
#include "core/parallel.h"

namespace cairn::copy_task {

// The run, and settings that are no run's.
struct RunCommand {
  RunCommand(CLI::App& app, const char* name, const char* summary, const std::string& footer,
             const char* run_help = "the run's folder")
      : called(name), command(add_command(app, name, summary, footer)), options(&command) {
    add_path(command, "--run", run, "DIR", run_help);
  }
  virtual ~RunCommand() = default;

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

// Adds a command to the program; it lives as long as that.
template <class Command>
void define(CLI::App& app) {
  static std::unique_ptr<Command> command;
  command = std::make_unique<Command>(app);
}

}  // namespace cairn::copy_task
