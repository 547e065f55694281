#include "core/limits.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>

namespace cairn {
namespace {

// Takes the number that `text` begins with, and the blank behind it. False: there is none ("max").
bool take_number(std::string_view& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(std::min(text.size(), size_t(end - text.data()) + 1));
  return true;
}

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

int64_t number_in(const std::string& path) {
  const std::string line = first_line(path);
  std::string_view text = line;
  int64_t number = -1;
  return take_number(text, number) ? number : -1;
}

void limit_processors(Limits& limits, int64_t quota, int64_t period) {
  if (quota > 0 && period > 0) limits.processors = int(std::min<int64_t>(limits.processors, (quota - 1) / period + 1));
}

void limit_memory(Limits& limits, int64_t bytes) {
  if (bytes > 0) limits.memory = std::min(limits.memory, size_t(bytes));
}

// One group's own limits.
void read_group(Limits& limits, const std::string& folder) {
  const std::string line = first_line(folder + "/cpu.max");  // "QUOTA PERIOD" or "max PERIOD", microseconds
  std::string_view text = line;
  int64_t quota = 0, period = 0;
  if (take_number(text, quota) && take_number(text, period)) limit_processors(limits, quota, period);
  limit_processors(limits, number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us"));
  limit_memory(limits, number_in(folder + "/memory.max"));
  limit_memory(limits, number_in(folder + "/memory.limit_in_bytes"));
}

}  // namespace

Limits read_limits(const std::string& root) {
  Limits limits;
  const std::string mounted = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "7:cpu,cpuacct:/a/group"; version 2 names no controllers
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    std::string group = line.substr(second + 1);
    for (;;) {  // the group, those around it, the root
      while (group.ends_with('/')) group.pop_back();
      if (controllers == ",,")
        for (const char* where : {"", "/unified"}) read_group(limits, mounted + where + group);
      for (const char* controller : {"cpu", "memory"})
        if (controllers.find(',' + std::string(controller) + ',') != std::string::npos)
          read_group(limits, mounted + '/' + controller + group);
      if (group.empty()) break;
      const size_t slash = group.rfind('/');
      group.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return limits;
}

const Limits& limits() {
  static const Limits read = [] {
    const char* root = std::getenv("CAIRN_SYSTEM_ROOT");
    return read_limits(root ? root : "");
  }();
  return read;
}

}  // namespace cairn
