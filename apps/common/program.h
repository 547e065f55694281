#pragma once
// The command line that all programs share, and how they end: 0 done, 1 failure, 2 usage or configuration, 3 bad data,
// 4 device or out of memory, 5 diverged, 130 interrupted. Whatever goes wrong is one line on standard error,
// "<program>: error: what, where, got, expected, what to do".
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/device.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cairn {

// Options of every program.
struct CommonOptions {
  std::string device = "auto";
  int64_t threads = 0;  // 0: as many as the machine has
  int64_t seed = 1;
  bool json = false;   // the result as one JSON object on the last line of standard output, all else on standard error
  bool quiet = false;  // only the result and errors
};

// Adds --device, --threads, --seed, --json and --quiet to a command.
void add_common_options(CLI::App& command, CommonOptions& options);
// Sets the number of threads; the device that "auto", "cpu" or "cuda" stands for ("auto" never picks the emulated one).
// Error (DeviceError): built without CUDA, or no GPU.
Device apply(const CommonOptions& options);

// Options that take a number. What is not one, not finite or out of range is refused with the range in the message.
CLI::Option* add_integer(CLI::App& command, const std::string& name, int64_t& value, int64_t least, int64_t most,
                         const std::string& help);
CLI::Option* add_real(CLI::App& command, const std::string& name, double& value, double least, double most,
                      const std::string& help);

// An option that takes one of a few names.
CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value,
                        const std::vector<std::string>& choices, const std::string& help);

// Defines a program's commands on `app` and gives each a callback; then parses and runs. Returns the exit code.
int run_program(const char* name, const char* summary, const char* example, int argc, char** argv,
                const std::function<void(CLI::App& app)>& define);

// Prints text that belongs to the result. Error: standard output cannot be written to.
void print(const std::string& text);

// Has the user asked to stop (SIGINT or SIGTERM)? Long work looks after every step and ends in order; asked a second
// time, the program ends at once.
bool interrupted();
void catch_interrupts();
inline constexpr int exit_interrupted = 130;

}  // namespace cairn
