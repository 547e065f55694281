#include "apps/common/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <iostream>
#include <new>
#include <sstream>
#include <thread>

#include "apps/common/commit.h"
#include "core/did_you_mean.h"
#include "core/error.h"
#include "core/parallel.h"
#include "nn/attention/attention.h"
#include "nn/parallel/communicator.h"

namespace cairn {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
const char* volatile stop_message = "";
std::string program_name;

Communicator alone;
std::unique_ptr<Communicator> connected;  // with the other processes; null outside of run_program()

// A message as one line for a terminal: what stood on several is joined, what cannot be printed is left out, and of
// what is very long the middle is.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  std::erase_if(text, [](char c) { return (c >= 0 && c < ' ') || c == 127; });
  constexpr size_t maximum = 1000;
  if (text.size() > maximum) text = text.substr(0, maximum / 2) + " ... " + text.substr(text.size() - maximum / 2);
  return text;
}

int out_of_memory() {
  std::cerr << program_name << ": error: out of memory" << std::endl;
  return 4;
}

// Memory may also run out where nothing can be thrown: nlohmann's JSON asks for some while it is destroyed.
[[noreturn]] void terminated() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    _exit(out_of_memory());
  } catch (...) {
  }
  std::abort();
}

// Tells of an error, also where there is no memory left to put a message together.
int report_error(const char* message, int exit_code) try {
  const std::string line = one_line(message);
  std::cerr << program_name << ": error: " << line << std::endl;
  return exit_code;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// The commands and options that a user could have meant.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// What CLI11 could not place: an option or a command that does not exist.
[[noreturn]] void unexpected(const CLI::App& app, const std::string& word, const char* name) {
  const auto commands = command_names(app);
  const auto parsed = app.get_subcommands();
  const std::string help = concat(name, parsed.empty() ? "" : " " + parsed.front()->get_name(), " --help");
  if (parsed.empty() && !commands.empty() && (word.empty() || word[0] != '-'))
    throw UsageError(concat("unknown command '", word, "'", did_you_mean(word, commands), "; there is ",
                            joined(commands), "; see ", name, " --help"));
  const CLI::App& command = parsed.empty() ? app : *parsed.front();
  check<UsageError>(!word.empty() && word[0] == '-', "unexpected argument '", word, "'; see ", help);
  const std::string option = word.substr(0, word.find('='));
  throw UsageError(
      concat("unknown option '", option, "'", did_you_mean(option, option_names(command)), "; see ", help));
}

// CLI11's messages for a missing value and for a flag with one begin with the option's name and end in its own terms.
std::string about_value(const std::string& message) {
  const std::string name = message.substr(0, message.find_first_of(": ")), option = (name[0] == '-' ? "" : "--") + name;
  const bool flag = message.find("override") != std::string::npos;
  return option + (flag ? ": takes no value" : ": expected a value behind it");
}

int parse_and_run(CLI::App& app, const char* name, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto parsed = app.get_subcommands();
    print(parsed.empty() ? app.help() : parsed.front()->help(name));
  } catch (const CLI::CallForVersion&) {
    print(app.version() + "\n");
  } catch (const CLI::ExtrasError&) {
    const auto extras = app.remaining(true);
    unexpected(app, extras.empty() ? "" : extras.front(), name);
  } catch (const CLI::RequiredError& error) {
    if (!app.get_subcommands().empty()) throw UsageError(one_line(error.what()));
    if (argc > 1) unexpected(app, argv[1], name);
    throw UsageError(concat("expected a command: ", joined(command_names(app)), "; see ", name, " --help"));
  } catch (const Interrupted&) {
    return exit_interrupted;
  } catch (const CLI::ArgumentMismatch& error) {
    throw UsageError(about_value(error.what()));
  } catch (const CLI::ParseError& error) {
    throw UsageError(one_line(error.what()));
  }
  return 0;
}

// Where a standard stream is closed, the next file opened would take its number, and what is meant for the stream would
// end up in the file. So the number is taken by something that cannot be written to.
void keep_standard_streams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    while (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_RDONLY) >= 0) {
    }
}

// Help texts in 80 columns.
struct WrappedHelp : CLI::Formatter {
  std::string make_option_desc(const CLI::Option* option) const override {
    std::istringstream words(CLI::Formatter::make_option_desc(option));
    std::string text, line;
    for (std::string word; words >> word;) {
      if (!line.empty() && line.size() + 1 + word.size() > 80 - get_column_width()) {
        text += line + '\n';  // CLI11 indents what follows
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    return text + line;
  }
};

}  // namespace

int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return 2;
  if (dynamic_cast<const DataError*>(&error)) return 3;
  if (dynamic_cast<const DeviceError*>(&error)) return 4;
  return dynamic_cast<const DivergedError*>(&error) ? 5 : 1;
}

int run_program(const char* name, const char* summary, const char* footer, int argc, char** argv,
                const std::function<void(CLI::App& app)>& define) {
  // A closed standard output and a file-size limit are errors that can be reported.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  keep_standard_streams();
  program_name = name;
  std::set_terminate(terminated);
  // The end of a process that failed: others wait for it.
  const auto ended = [](int exit_code) {
    if (connected && connected->size() > 1) connected->abort(exit_code);
    return exit_code;
  };
  try {
    connected = connect();
    set_threads(std::max(1, threads() / connected->on_processors()));
    if (connected->rank() > 0) {
      program_name += concat(", rank ", connected->rank());
      check(std::freopen("/dev/null", "w", stdout), "/dev/null: cannot be opened");
    }
    CLI::App app(summary, name);
    app.formatter(std::make_shared<WrappedHelp>());
    app.footer(footer);
    app.set_version_flag("--version", concat(name, " (Cairn ", CAIRN_VERSION, ", commit ", CAIRN_COMMIT,
                                             "; backends: ", backends(), "; vectors: ", cpu_vectors(), ")"));
    app.option_defaults()->take_last();  // given twice, the last one counts
    define(app);
    if (!command_names(app).empty()) app.require_subcommand(1);
    const int exit_code = parse_and_run(app, name, argc, argv);
    connected.reset();  // done with the others
    return exit_code;
  } catch (const std::bad_alloc&) {
    return ended(out_of_memory());
  } catch (const std::exception& error) {
    // What all ranks found is told by rank 0: then mpirun sends the others SIGTERM, one second later.
    if (launched_rank() > 0) {
      std::signal(SIGTERM, SIG_DFL);
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    return ended(report_error(error.what(), exit_code_of(error)));
  }
}

void on_run(CLI::App& command, std::function<void(Communicator& ranks)> run) {
  command.callback([run = std::move(run)] { run(connected ? *connected : alone); });
}

const std::string& program() { return program_name; }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || std::strchr("/._-+,:=@%", c);
  });
  if (plain) return text;
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

void print(const std::string& text) {
  std::cout << text << std::flush;
  check(bool(std::cout), "cannot write to standard output");
}

void note(const std::string& text, bool quiet) {
  if (!quiet) std::cerr << text << std::endl;
}

void note_if_full(const Attention& attention, int64_t queries, int64_t keys, bool quiet) {
  if (const std::string text = full_attention_note(attention, queries, keys); !text.empty()) note(text, quiet);
}

bool colors() {
  const char* no_color = std::getenv("NO_COLOR");
  return !no_color || !*no_color;
}

bool interrupted() { return stop_requested != 0; }

void catch_interrupts(bool quiet) {
  static constexpr char told[] = "stopping after this step; once more to stop at once\n";
  static constexpr char told_below_bar[] = "\nstopping after this step; once more to stop at once\n";
  if (!quiet) stop_message = isatty(STDERR_FILENO) ? told_below_bar : told;
  // A second one ends the program at once, because whatever runs between two looks may be long. Not if it comes right
  // behind the first: timeout(1) and others signal a process and then its group.
  static std::atomic<int64_t> first{0};  // when, in nanoseconds
  static_assert(std::atomic<int64_t>::is_always_lock_free, "used in a handler of signals");
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    std::signal(signal, [](int) {
      timespec clock{};
      clock_gettime(CLOCK_MONOTONIC, &clock);
      const int64_t now = clock.tv_sec * int64_t(1'000'000'000) + clock.tv_nsec;
      int64_t earlier = 0;
      if (!first.compare_exchange_strong(earlier, now)) {
        if (now - earlier > 500'000'000) _exit(exit_interrupted);
        return;
      }
      stop_requested = 1;
      const int number = errno;
      const char* text = stop_message;
      (void)!write(STDERR_FILENO, text, std::strlen(text));
      errno = number;
    });
  }
}

void ignore_interrupts() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
}

}  // namespace cairn
