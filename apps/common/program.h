#pragma once
// The command line that all programs share, and how they end: 0 done, 1 failure, 2 usage or configuration, 3 bad data,
// 4 device or out of memory, 5 diverged, 130 interrupted. Whatever goes wrong is one line on standard error,
// "<program>: error: what, where, got, expected, what to do".
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace cairn {

class Attention;
class Command;
using MakeCommand = std::unique_ptr<Command> (*)();

// A program of these commands: parses and runs one, and returns the exit code. Of several processes that mpirun or
// Slurm started, only rank 0 has a standard output; an error that all find is told by rank 0 alone, and one that fails
// ends all.
int run_program(const char* name, const char* summary, const char* footer, const std::vector<MakeCommand>& commands,
                int argc, char** argv);

// The exit code of a program that an error ends: 1 to 5.
int exit_code_of(const std::exception& error);

// Its name, as errors begin with it.
const std::string& program();

// "a, b, c".
std::string joined(const std::vector<std::string>& words);

// Prints text that belongs to the result. Error: standard output cannot be written to.
void print(const std::string& text);
// Prints a line for the reader on standard error, unless `quiet`.
void note(const std::string& text, bool quiet);
// Such a line where the variant computes full attention on so many queries and keys (full_attention_note).
void note_if_full(const Attention& attention, int64_t queries, int64_t keys, bool quiet);

// Has the user asked to stop (SIGINT, SIGTERM or SIGHUP)? Long work looks after every step and ends in order. Asked
// again more than half a second after the first time, the program ends at once, wherever it is. The first time is
// acknowledged on standard error, unless `quiet`. A signal that the parent had ignored (nohup) stays ignored.
bool interrupted();
void catch_interrupts(bool quiet);
// Leaves these signals to another process: mpirun sends them to all, and rank 0 answers for all.
void ignore_interrupts();
struct Interrupted {};  // thrown once all is in order: the program ends with 130

}  // namespace cairn
