#pragma once
// The command line that all programs share, and how they end: 0 done, 1 failure, 2 usage or configuration, 3 bad data,
// 4 device or out of memory, 5 diverged, 130 interrupted. Every error is one line on standard error,
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

// The main function of a program with these commands: runs one, and returns the exit code. With several processes of
// mpirun or Slurm, only rank 0 has a standard output. Rank 0 alone reports an error that all ranks find. A process that
// fails ends all.
int run_program(const char* name, const char* summary, const char* footer, const std::vector<MakeCommand>& commands,
                int argc, char** argv);

// The exit code for an error: 1 to 5.
int exit_code_of(const std::exception& error);

// The program's name, which begins its error messages.
const std::string& program();

// Prints a part of the result on standard output. Error: it cannot be written.
void print(const std::string& text);
// Prints a line for the reader on standard error, unless `quiet`.
void note(const std::string& text, bool quiet);
// Prints full_attention_note() as such a line, if there is one for so many queries and keys.
void note_if_full(const Attention& attention, int64_t queries, int64_t keys, bool quiet);

// Has the user asked to stop (SIGINT, SIGTERM or SIGHUP)? Long work asks after every step, and saves before it ends.
// The first signal prints a line on standard error, unless `quiet`. A second one, more than half a second later, ends
// the program at once. A signal that the parent process ignored (nohup) stays ignored.
bool interrupted();
void catch_interrupts(bool quiet);
// Ignores these signals: mpirun sends them to all processes, and rank 0 decides for all.
void ignore_interrupts();
struct Interrupted {};  // thrown after saving: the program ends with 130

}  // namespace cairn
