#pragma once
// A program's commands, and how they start and end. Every error is one line on standard error, "<program>: error: what,
// where, got, expected, what to do"; --help lists the exit codes.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/settings.h"

namespace cairn {

class Communicator;

// What the user gave a command. The command declares its settings, and then calls parse():
//
//   void evaluate_command(CommandLine& line) {
//     int64_t sequences = 1024;
//     line("sequences", sequences, {1, 1 << 20}, "number of fresh sequences");
//     line.parse();
//     ...
//
// From the weakest source of a value to the strongest: the default, --quick, the run that is continued, --config FILE,
// --set key=value, the option.
class CommandLine : public SettingFields {
 public:
  // Of a command, or of a program without commands. The words begin with the command's or the program's name.
  CommandLine(CLI::App& command, int argc, char** argv);
  ~CommandLine();

  // The end of the help text.
  void footer(const std::string& text);
  // Declares --threads, of a command without ComputeSettings. parse() sets their number.
  void threads();
  // Adds --json, --quiet, --config and --set, and gives all settings their values. With --help it prints the help, and
  // the program ends. Errors (UsageError): a word or a value is not valid; mpirun started several processes, and
  // many_processes is false.
  void parse();

  // Takes the settings of the run in the folder --out. Errors: as read_run(); UsageError: the user gave another value
  // to settings that a run keeps; the message names them.
  void continue_run(const std::filesystem::path& folder);
  // Takes the settings of a configuration, but for those that the user gave. Error (UsageError): as checked().
  void take(const Json& configuration, const std::string& where);
  // Prints the result: the text, or with --json the object on the last line.
  void tell(const Json& result, const std::string& text) const;

  bool json = false, quiet = false;
  bool many_processes = false;  // may mpirun start several?

 private:
  CLI::App& app_;
  int argc_;
  char** argv_;
  std::unique_ptr<Json> given_;
  int64_t threads_ = 0;
};

// A command: its name (empty: the program has no commands, and this is all it does), what it does, and a line about it.
struct Command {
  const char* name;
  void (*run)(CommandLine& line);
  const char* summary;
};

// The main function of a program with these commands: runs one, and returns the exit code. With several processes of
// mpirun or Slurm, only rank 0 has a standard output. Rank 0 alone reports an error that all ranks find. A process that
// fails ends all. What a save cannot keep (on_loss in nn/io/file.h) is noted once.
int run_program(const char* name, const char* summary, const char* footer, const std::vector<Command>& commands,
                int argc, char** argv);

// The processes that mpirun or Slurm started, or this one alone.
Communicator& processes();

// The program's name, which begins its error messages.
const std::string& program();

// How results are made: version and commit, device, processor, threads, vectors.
Json provenance(Device device);

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
