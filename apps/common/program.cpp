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

using Json = nlohmann::ordered_json;

constexpr int exit_interrupted = 130;
// The end of every program's --help.
constexpr const char* exit_codes =
    "\nExit codes: 0 done, 1 failure, 2 usage or configuration, 3 bad data, model or\n"
    "checkpoint, 4 device or out of memory, 5 diverged, 130 interrupted (what can be\n"
    "saved is saved; a second Ctrl-C, more than half a second later, ends it at once).";
volatile std::sig_atomic_t stop_requested = 0;
const char* volatile stop_message = "";
std::string program_name;

// Bytes that are not UTF-8 become U+FFFD.
std::string as_utf8(const std::string& text) { return Json::parse(printed(text)); }

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
  const std::string& word = words.front();
  const std::string name = word.starts_with('-') ? word.substr(0, word.find('=')) : word;
  std::vector<std::string> known = command_names(command);
  for (const CLI::Option* option : command.get_options())
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  throw UsageError(concat("unexpected argument '", name, "'", did_you_mean(name, known), "; see ", title, " --help"));
}

// Of a program with commands, the first argument names the command, and the command parses the others alone. If the
// program parsed them all, CLI11 would look for commands among the words of a query, and end a command at "++" or "--".
int parse_and_run(CLI::App& app, int argc, char** argv) {
  const auto named = app.get_subcommands([&](const CLI::App* each) { return argc > 1 && each->check_name(argv[1]); });
  const bool no_command = named.empty() && !command_names(app).empty();
  CLI::App& command = named.empty() ? app : *named.front();
  const std::string before = named.empty() ? "" : app.get_name(),
                    title = concat(before, named.empty() ? "" : " ", command.get_name());
  try {
    for (int i = 1; i < argc && argv[i] != std::string_view("--"); ++i) {  // CLI11 takes the next word for the value
      const std::string_view word = argv[i];
      check<UsageError>(!word.starts_with("--") || word.find('=') + 1 != word.size(), word.substr(0, word.find('=')),
                        ": expected a value after it");
    }
    const int skipped = named.empty() ? 0 : 1;
    command.parse(no_command ? std::min(argc, 2) : argc - skipped, argv + skipped);
    check<UsageError>(!no_command, "expected a command: ", joined(command_names(app)), "; see ", title, " --help");
    return 0;
  } catch (const CLI::CallForHelp&) {
    print(command.help(before));
    return 0;
  } catch (const CLI::CallForVersion&) {
    print(app.version() + "\n");
    return 0;
  } catch (const CLI::ExtrasError&) {
    unexpected(command, title);
  } catch (const CLI::ArgumentMismatch& error) {  // begins with the option's name
    const std::string message = error.what();
    throw UsageError(message.substr(0, message.find(':')) + ": expected a value after it");
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  } catch (const Interrupted&) {
    return exit_interrupted;
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

Command::Command(const char* name, const char* summary, std::string footer)
    : name_(name), summary_(summary), footer_(std::move(footer)), given_(new Json(Json::object())) {}
Command::~Command() = default;

void Command::define(CLI::App& app, Communicator& ranks) {
  CLI::App& command = *name_ ? *app.add_subcommand(name_, summary_) : app;
  command.footer(footer_);
  fields_ = std::make_unique<SettingFields>(&command);
  fields(*fields_);
  command.add_option("--config", config_file_, "read settings from a JSON file, such as a run's config.json")
      ->type_name("FILE");
  const CLI::Option* sets =
      command.add_option("--set", CLI::callback_t(), "set one key of the configuration; may be repeated")
          ->type_name("KEY=VALUE")
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  (*fields_)("json", json, "print results as JSON, one object on a line", Keep::not_in_config);
  (*fields_)("quiet", quiet, "print only the result, errors and warnings", Keep::not_in_config);
  command.callback([this, &command, sets, &ranks] {
    check<UsageError>(many_processes || ranks.size() == 1, command.get_name(), ": runs as one process, and ",
                      ranks.size(), " were started; start it without mpirun");
    if (command.count("--config") > 0) try {
        given_->update(fields_->checked(read_json(config_file_), config_file_));
      } catch (const DataError& error) {
        throw UsageError(concat("--config: ", error.what()));
      }
    for (const std::string& set : sets->results()) given_->update(fields_->set(set));
    given_->update(fields_->options());
    fields_->assign(*given_);
    run(ranks);
  });
}

void Command::continue_run(const std::filesystem::path& folder) {
  const Json all = read_run(*fields_, "--out", folder);
  fields_->check_kept(*given_, all, folder);
  take(all, folder.string());
}

void Command::take(const Json& configuration, const std::string& where) {
  Json all = fields_->checked(configuration, where);
  all.update(*given_);
  fields_->assign(all);
}

void Command::follow(const Json& configuration) { fields_->assign(configuration); }

Json Command::config() const { return fields_->config(); }

void Command::tell(const Json& result, const std::string& text) const { print(json ? printed(result) + "\n" : text); }

int run_program(const char* name, const char* summary, const char* footer, const std::vector<MakeCommand>& commands,
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
    set_threads(std::max(1, threads() / ranks->sharing_processors()));
    if (ranks->rank() > 0) {
      program_name += concat(", rank ", ranks->rank());
      check(std::freopen("/dev/null", "w", stdout), "/dev/null: cannot be opened");
    }
    CLI::App app(summary, name);
    app.formatter(std::make_shared<WrappedHelp>());
    app.footer(footer);
    app.set_version_flag("--version", concat(name, " (Cairn ", CAIRN_VERSION, ", commit ", CAIRN_COMMIT,
                                             "; backends: ", backends(), "; vectors: ", cpu_vectors(), ")"));
    app.option_defaults()->take_last();  // of an option given twice, the last value counts
    std::vector<std::unique_ptr<Command>> made;
    for (const MakeCommand make : commands) made.emplace_back(make())->define(app, *ranks);
    app.footer(app.get_footer() + exit_codes);
    return parse_and_run(app, argc, argv);
  } catch (const std::exception& error) {
    // Rank 0 reports an error that all ranks found. Then mpirun sends the others SIGTERM, one second later.
    if (launched_rank() > 0) {
      std::signal(SIGTERM, SIG_DFL);
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    std::cerr << program_name << ": error: " << (no_memory ? "out of memory" : one_line(as_utf8(error.what())))
              << std::endl;
    const int exit_code = exit_code_of(error);
    if (ranks && ranks->size() > 1) ranks->abort(exit_code);  // others wait for this process
    return exit_code;
  }
}

const std::string& program() { return program_name; }

void print(const std::string& text) {
  std::cout << text << std::flush;
  check(bool(std::cout), "cannot write to standard output");
}

void note(const std::string& text, bool quiet) {
  if (!quiet && !text.empty()) std::cerr << as_utf8(text) << std::endl;
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
