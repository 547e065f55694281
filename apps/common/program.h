#pragma once
// The command line that all programs share, and how they end: 0 done, 1 failure, 2 usage or configuration, 3 bad data,
// 4 device or out of memory, 5 diverged, 130 interrupted. Whatever goes wrong is one line on standard error,
// "<program>: error: what, where, got, expected, what to do".
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cairn {

class Attention;
class Communicator;

// What runs once all options of the command, or of a program without commands, are read.
void on_run(CLI::App& command, std::function<void(Communicator& ranks)> run);

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
