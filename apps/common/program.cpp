#include "apps/common/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "apps/common/commit.h"
#include "core/did_you_mean.h"
#include "core/error.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "nn/io/json.h"
#include "nn/parallel/communicator.h"

namespace cairn {
namespace {

constexpr int exit_interrupted = 130;
// The end of every program's --help.
constexpr const char* exit_codes =
    "\nExit codes: 0 done, 1 failure, 2 usage or configuration, 3 bad data, model or\n"
    "checkpoint, 4 device or out of memory, 5 diverged, 130 interrupted (what can be\n"
    "saved is saved; a second Ctrl-C, more than half a second later, ends it at once).";
volatile std::sig_atomic_t stop_requested = 0;
const char* volatile stop_message = "";
std::string program_name;
Communicator* started = nullptr;  // by the launcher, while run_program() runs
struct HelpShown {};              // thrown: the program ends with 0

// The processor's name, as Linux reports it. On ARM it reports two numbers instead, which lscpu(1) has names for.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  std::string implementer = "unknown";
  for (std::string line; std::getline(info, line);) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (line.starts_with("CPU part")) return concat("ARM implementer ", implementer, " part ", value);
  }
  return "unknown";
}

// A message as one line for a terminal.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  return text;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// Reports an option or a command that does not exist.
[[noreturn]] void unexpected(const CLI::App& command, const std::string& title) {
  std::vector<std::string> words = command.remaining();
  if (words.size() > 1 && words.front() == "--") words.erase(words.begin());
  const std::string word = as_given(words.front());
  const std::string name = word.starts_with('-') ? word.substr(0, word.find('=')) : word;
  std::vector<std::string> known = command_names(command);
  for (const CLI::Option* option : command.get_options())
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  throw UsageError(concat("unexpected argument '", name, "'", did_you_mean(name, known), "; see ", title, " --help"));
}

// Gives the words to the program or to one of its commands, which parses them alone. If the program parsed them all,
// CLI11 would look for commands among the words of a query, and end a command at "++" or "--".
void parse_words(CLI::App& app, int argc, char** argv) {
  const std::string before = app.get_parent() ? app.get_parent()->get_name() : "",
                    title = concat(before, before.empty() ? "" : " ", app.get_name());
  try {
    for (int i = 1; i < argc && argv[i] != std::string_view("--"); ++i) {  // CLI11 takes the next word for the value
      const std::string_view word = argv[i];
      check<UsageError>(!word.starts_with("--") || word.find('=') + 1 != word.size(), word.substr(0, word.find('=')),
                        ": expected a value after it");
    }
    std::vector<std::string> words;  // from the last one, as CLI11 takes them
    for (int i = argc - 1; i > 0; --i) words.push_back(for_cli11(argv[i]));
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    print(app.help(before));
    throw HelpShown();
  } catch (const CLI::CallForVersion&) {
    print(app.version() + "\n");
    throw HelpShown();
  } catch (const CLI::ExtrasError&) {
    unexpected(app, title);
  } catch (const CLI::ArgumentMismatch& error) {  // begins with the option's name
    const std::string message = error.what();
    throw UsageError(message.substr(0, message.find(':')) + ": expected a value after it");
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
}

// If a standard stream is closed, the next file that is opened gets its number, and output to the stream goes into the
// file. This opens /dev/null for reading instead, so that such output fails.
void keep_standard_streams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    while (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_RDONLY) >= 0) {
    }
}

// Help texts in 80 columns.
struct WrappedHelp : CLI::Formatter {
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const std::string usage = CLI::Formatter::make_usage(app, "");  // CLI11 2.6 prints a name in place of "Usage:"
    return std::string(usage).insert(usage.find(':') + 1, name.empty() ? "" : " " + name);
  }
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

// The first signal sets stop_requested. A second one ends the program at once, because a step may be long. A second
// signal within half a second does nothing: timeout(1) and others signal a process and then its group.
void on_signal(int) {
  static std::chrono::steady_clock::time_point first;
  const auto now = std::chrono::steady_clock::now();
  if (stop_requested) {
    if (now - first > std::chrono::milliseconds(500)) _exit(exit_interrupted);
    return;
  }
  first = now;
  stop_requested = 1;
  const int number = errno;
  (void)!write(STDERR_FILENO, stop_message, std::strlen(stop_message));
  errno = number;
}

int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return 2;
  if (dynamic_cast<const DataError*>(&error)) return 3;
  if (dynamic_cast<const DeviceError*>(&error) || dynamic_cast<const std::bad_alloc*>(&error)) return 4;
  return dynamic_cast<const DivergedError*>(&error) ? 5 : 1;
}

}  // namespace

CommandLine::CommandLine(CLI::App& command, int argc, char** argv)
    : SettingFields(&command), app_(command), argc_(argc), argv_(argv), given_(new Json(Json::object())) {}
CommandLine::~CommandLine() = default;

void CommandLine::footer(const std::string& text) { app_.footer(app_.get_parent() ? text : text + exit_codes); }

void CommandLine::threads() { threads_field(*this, threads_); }

void CommandLine::parse() {
  std::string config_file;
  app_.add_option("--config", config_file, "read settings from a JSON file, such as a run's config.json")
      ->type_name("FILE");
  const CLI::Option* sets =
      app_.add_option("--set", CLI::callback_t(), "set one key of the configuration; may be repeated")
          ->type_name("KEY=VALUE")
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  (*this)("json", json, "print results as JSON, one object on a line", Keep::not_in_config);
  (*this)("quiet", quiet, "print only the result, errors and warnings", Keep::not_in_config);
  parse_words(app_, argc_, argv_);
  check<UsageError>(many_processes || processes().size() == 1, app_.get_name(), ": runs as one process, and ",
                    processes().size(), " were started; start it without mpirun");
  if (app_.count("--config") > 0) try {
      config_file = as_given(config_file);
      given_->update(checked(read_json(config_file), config_file));
    } catch (const DataError& error) {
      throw UsageError(concat("--config: ", error.what()));
    }
  for (const std::string& each : sets->results()) given_->update(set(as_given(each)));
  given_->update(options());
  assign(*given_);
  if (threads_ > 0) set_threads(int(threads_));
}

void CommandLine::continue_run(const std::filesystem::path& folder) {
  const Json all = read_run(*this, "--out", folder);
  check_kept(*given_, all, folder);
  take(all, folder.string());
}

void CommandLine::take(const Json& configuration, const std::string& where) {
  Json all = checked(configuration, where);
  all.update(*given_);
  assign(all);
}

void CommandLine::tell(const Json& result, const std::string& text) const {
  print(json ? printed(result) + "\n" : text);
}

int run_program(const char* name, const char* summary, const char* footer, const std::vector<Command>& commands,
                int argc, char** argv) {
  // A closed standard output and a file-size limit are errors that can be reported.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  keep_standard_streams();
  program_name = name;
  on_loss = [](const std::filesystem::path& path, const char* what) {
    static std::set<std::string> told;
    if (told.insert(what).second) note(concat(isatty(STDERR_FILENO) ? "\r\033[K" : "", path, ": ", what), false);
  };
  std::unique_ptr<Communicator> ranks;
  try {
    ranks = connect();
    started = ranks.get();
    set_threads(std::max(1, threads() / ranks->sharing_processors()));
    if (ranks->rank() > 0) {
      program_name += concat(", rank ", ranks->rank());
      check(std::freopen("/dev/null", "w", stdout), "/dev/null: cannot be opened");
    }
    CLI::App app(summary, name);
    app.formatter(std::make_shared<WrappedHelp>());
    app.footer(concat(footer, exit_codes));
    app.set_version_flag("--version", concat(name, " (Cairn ", CAIRN_VERSION, ", commit ", CAIRN_COMMIT,
                                             "; backends: ", backends(), "; vectors: ", cpu_vectors(), ")"));
    app.option_defaults()->take_last();  // of an option given twice, the last value counts
    for (const Command& each : commands)
      if (*each.name) app.add_subcommand(each.name, each.summary);
    for (const Command& each : commands) {
      const bool is_whole = !*each.name, is_named = argc > 1 && argv[1] == std::string_view(each.name);
      if (!is_whole && !is_named) continue;
      CommandLine line(is_whole ? app : *app.get_subcommand(each.name), argc - is_named, argv + is_named);
      each.run(line);
      return 0;
    }
    parse_words(app, std::min(argc, 2), argv);
    throw UsageError(concat("expected a command: ", joined(command_names(app)), "; see ", name, " --help"));
  } catch (const HelpShown&) {
    return 0;
  } catch (const Interrupted&) {
    return exit_interrupted;
  } catch (const std::exception& error) {
    // Rank 0 reports an error that all ranks found. Then mpirun sends the others SIGTERM, one second later.
    if (launched_rank() > 0) {
      std::signal(SIGTERM, SIG_DFL);
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    const std::string problem = no_memory ? "out of memory" : one_line(as_utf8(error.what()));
    std::cerr << concat(program_name, ": error: ", problem, '\n');  // one write: mpirun may print between two
    const int exit_code = exit_code_of(error);
    if (ranks && ranks->size() > 1) ranks->abort(exit_code);  // others wait for this process
    return exit_code;
  }
}

Communicator& processes() {
  static Communicator alone;
  return started ? *started : alone;
}

const std::string& program() { return program_name; }

Json provenance(Device device) {
  return {{"version", CAIRN_VERSION}, {"commit", CAIRN_COMMIT}, {"backends", backends()},  {"device", name(device)},
          {"processor", processor()}, {"threads", threads()},   {"vectors", cpu_vectors()}};
}

void print(const std::string& text) {
  std::cout << text << std::flush;
  check(bool(std::cout), "cannot write to standard output");
}

void note(const std::string& text, bool quiet) {
  if (!quiet && !text.empty()) std::cerr << as_utf8(text) + '\n';
}

bool interrupted() { return stop_requested != 0; }

void catch_interrupts(bool quiet) {
  if (!quiet)
    stop_message = isatty(STDERR_FILENO) ? "\nstopping after this step; interrupt again to stop at once\n"
                                         : "stopping after this step; interrupt again to stop at once\n";
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
}

void ignore_interrupts() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
}

}  // namespace cairn
