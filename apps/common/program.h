#pragma once
// The command line that all programs share, and how they end: 0 done, 1 failure, 2 usage or configuration, 3 bad data,
// 4 device or out of memory, 5 diverged, 130 interrupted. Whatever goes wrong is one line on standard error,
// "<program>: error: what, where, got, expected, what to do".
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"

namespace CLI {
class App;
}

namespace cairn {

class Attention;
class Communicator;
class Options;

// Where a program computes, and the element type of its activations.
struct Compute {
  Device device = Device::cpu;
  DType activations = DType::float32;
};

// Settings of every program: where and how precisely it computes, and what names its random numbers.
struct CommonSettings {
  std::string device = "auto", precision = "float32";
  int64_t threads = 0;  // 0: as many as the machine gives this process
  int64_t seed = 1;

  // Declares device, precision, threads and seed.
  void define(Options& options);
  // Sets the number of threads and how float32 is multiplied. "auto" is CUDA where there is a GPU that this build has
  // code for, and never the emulated one. Errors: DeviceError: built without CUDA, or the GPU cannot be used;
  // UsageError: a precision that the CPU does not have.
  Compute apply() const;
};

// Declares --threads; 0 stands for its default.
void define_threads(Options& options, int64_t& threads);

// How a program tells its result; no setting of a run.
struct OutputOptions {
  bool json = false;   // the result as one JSON object on the last line of standard output, all else on standard error
  bool quiet = false;  // only the result and errors

  // Adds --json and --quiet.
  void define(CLI::App& command);
};

// A program's commands and options. CLI11 is heavy: these and Options are all of it that programs see.
// Adds a command; `footer` stands at the end of its help.
CLI::App& add_command(CLI::App& app, const char* name, const char* summary, const std::string& footer);
// Makes a program's command, which lives as long as the program.
template <class Command>
void define_command(CLI::App& app) {
  static std::unique_ptr<Command> command;
  command = std::make_unique<Command>(app);
}
void set_footer(CLI::App& command, const std::string& footer);
// What runs once all options of the command, or of a program without commands, are read. Error (UsageError): mpirun or
// Slurm started several processes.
void on_run(CLI::App& command, std::function<void()> run);
// The same for what several processes may run together.
void on_run(CLI::App& command, std::function<void(Communicator& ranks)> run);
void add_flag(CLI::App& command, const std::string& name, bool& value, const std::string& help);
// Adds all words that are no options.
void add_words(CLI::App& command, const std::string& name, std::vector<std::string>& words, const std::string& help);
// Adds an option that may be given several times: the values of all, in order.
void add_list(CLI::App& command, const std::string& name, std::vector<std::string>& values, const std::string& help);
// Adds an option that names a file or a folder (`kind`: FILE, DIR).
void add_path(CLI::App& command, const std::string& name, std::string& value, const std::string& kind,
              const std::string& help);

// --trace FILE: where the time goes. All do nothing where it was not asked for.
class TraceOption {
 public:
  void define(CLI::App& command);
  // Error (UsageError): the file cannot be written. Leaves none behind.
  void try_file() const;
  void start() const;
  // Writes the file. Says how many spans it lacks, if any. Error: it cannot be written.
  void finish(bool quiet) const;
  // Nothing ran, so there is no file: says so.
  void nothing_ran(bool quiet) const;

 private:
  std::string file_;
};

// The exit code of a program that an error ends: 1 to 5, as above.
int exit_code_of(const std::exception& error);

// Defines a program's commands on `app` and gives each a callback, or the program itself if it has none; then parses
// and runs. Returns the exit code. Of several processes that mpirun or Slurm started, only rank 0 has a standard
// output; an error that all find is told by rank 0 alone, and one that fails ends all.
int run_program(const char* name, const char* summary, const char* footer, int argc, char** argv,
                const std::function<void(CLI::App& app)>& define);

// Its name, as errors begin with it.
const std::string& program();

// "a, b, c".
std::string joined(const std::vector<std::string>& words);
// Text as one word of a shell's command line.
std::string shell_word(const std::string& text);

// Prints text that belongs to the result. Error: standard output cannot be written to.
void print(const std::string& text);
// Prints a line for the reader on standard error, unless `quiet`.
void note(const std::string& text, bool quiet);
// Such a line where the variant computes full attention on so many queries and keys (full_attention_note).
void note_if_full(const Attention& attention, int64_t queries, int64_t keys, bool quiet);

// Are colors welcome (NO_COLOR)?
bool colors();

// Has the user asked to stop (SIGINT, SIGTERM or SIGHUP)? Long work looks after every step and ends in order. Asked
// again more than half a second after the first time, the program ends at once, wherever it is. The first time is
// acknowledged on standard error, unless `quiet`. A signal that the parent had ignored (nohup) stays ignored.
bool interrupted();
void catch_interrupts(bool quiet);
// Leaves these signals to another process: mpirun sends them to all, and rank 0 answers for all.
void ignore_interrupts();
inline constexpr int exit_interrupted = 130;
struct Interrupted {};  // thrown once all is in order: the program ends with exit_interrupted

}  // namespace cairn
