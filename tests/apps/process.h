#pragma once
// Runs a program as a user would, and tells what it printed and how it ended.
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

// `arguments` is read by the shell; `before` stands in front of the program ("timeout 1 ").
inline ProcessResult run_process(const std::string& program, const std::string& arguments,
                                 const std::string& before = "") {
  const std::string base = "/tmp/cairn-test-" + std::to_string(getpid());
  const std::string command = before + std::string(CAIRN_PROGRAMS) + "/" + program + " " + arguments + " </dev/null >" +
                              base + ".out 2>" + base + ".err";
  const int status = std::system(command.c_str());
  const auto read = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::remove(path.c_str());
    return text.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(base + ".out"), read(base + ".err")};
}

inline std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);  // of one line: all
}

}  // namespace cairn
