#pragma once
// Runs a program as a user does, and returns its output and exit code.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace cairn {

struct ProcessResult {
  int exit_code = -1;  // 128 + n for signal n
  std::string out, err;
};

// Runs a shell command.
inline ProcessResult run_command(const std::string& command) {
  const std::string base = "/tmp/cairn-test-" + std::to_string(getpid());
  const int status = std::system(("(" + command + ") </dev/null >" + base + ".out 2>" + base + ".err").c_str());
  const auto read = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::remove(path.c_str());
    return text.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(base + ".out"), read(base + ".err")};
}

// A folder of this build; the environment variable says where it was moved.
inline std::string folder_of_build(const char* variable, const char* built) {
  const char* const moved = std::getenv(variable);
  return moved ? moved : built;
}

// The shell reads `arguments`; `before` is a prefix of the command ("timeout 1 ").
inline ProcessResult run_process(const std::string& program, const std::string& arguments,
                                 const std::string& before = "") {
  setenv("CAIRN_PROGRAMS", CAIRN_PROGRAMS, 0);  // the shell needs no quotes within a variable's value
  return run_command(before + "\"$CAIRN_PROGRAMS\"/" + program + " " + arguments);
}

inline std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);  // all, if there is one line
}

// Why a text is not well-formed XML, or "". Uses Python if it is installed.
inline std::string markup_error(const std::string& text) {
  const std::string path = "/tmp/cairn-markup-" + std::to_string(getpid());
  std::ofstream(path) << text;
  const ProcessResult result = run_command(
      "command -v python3 >/dev/null || exit 0\n"
      "python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' " +
      path);
  std::remove(path.c_str());
  return result.exit_code == 0 ? "" : "not well-formed: " + result.err;
}

}  // namespace cairn
