#pragma once
// A program's commands, and how they start and end. Every error is one line on standard error, "<program>: error: what,
// where, got, expected, what to do"; --help lists the exit codes.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/settings.h"

namespace cairn {

class Communicator;

// A command. Each setting is a member that holds its default and that fields() declares. From the weakest source of a
// value to the strongest: the default, --quick, the run that is continued, --config FILE, --set key=value, the option.
class Command {
 public:
  using Json = nlohmann::ordered_json;

  // An empty name: the program has no commands, and this is its only action. The footer ends the help text.
  Command(const char* name, const char* summary, std::string footer);
  virtual ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  virtual void fields(SettingFields& f) = 0;  // its own; all have --json --quiet --config --set
  virtual void run(Communicator& ranks) = 0;  // when all settings have their values

  // Adds the command to a program, which runs on these processes.
  void define(CLI::App& app, Communicator& ranks);

 protected:
  // Takes the settings of the run in the folder --out. Errors: as read_run(); UsageError: the user gave another value
  // to settings that a run keeps; the message names them.
  void continue_run(const std::filesystem::path& folder);
  // Takes the settings of a configuration, but for those that the user gave. Error (UsageError): as
  // SettingFields::checked().
  void take(const Json& configuration, const std::string& where);
  // Takes all settings from a configuration: with several processes, that of rank 0.
  void follow(const Json& configuration);
  // The settings for a run's config.json, which is a valid --config.
  Json config() const;
  // Prints the result: the text, or with --json the object on the last line.
  void tell(const Json& result, const std::string& text) const;

  bool json = false, quiet = false;
  bool many_processes = false;  // may it be started by mpirun?

 private:
  const char* name_;
  const char* summary_;
  std::string footer_, config_file_;
  std::unique_ptr<SettingFields> fields_;
  std::unique_ptr<Json> given_;
};
using MakeCommand = std::unique_ptr<Command> (*)();

// The main function of a program with these commands: runs one, and returns the exit code. With several processes of
// mpirun or Slurm, only rank 0 has a standard output. Rank 0 alone reports an error that all ranks find. A process that
// fails ends all. What a save cannot keep (on_loss in nn/io/file.h) is noted once.
int run_program(const char* name, const char* summary, const char* footer, const std::vector<MakeCommand>& commands,
                int argc, char** argv);

// The program's name, which begins its error messages.
const std::string& program();

// Prints a part of the result on standard output. Error: it cannot be written.
void print(const std::string& text);
// Prints a line for the reader on standard error, unless it is empty or `quiet`.
void note(const std::string& text, bool quiet);

// Has the user asked to stop (SIGINT, SIGTERM or SIGHUP)? Long work asks after every step, and saves before it ends.
// The first signal prints a line on standard error, unless `quiet`. A second one, more than half a second later, ends
// the program at once. A signal that the parent process ignored (nohup) stays ignored.
bool interrupted();
void catch_interrupts(bool quiet);
// Ignores these signals: mpirun sends them to all processes, and rank 0 decides for all.
void ignore_interrupts();
struct Interrupted {};  // thrown after saving: the program ends with 130

}  // namespace cairn
