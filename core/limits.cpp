#include "core/limits.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace cairn {

Limits read_limits(const std::string& folder, Limits limits) {
  std::filesystem::path group = folder;
  for (; group != group.parent_path(); group = group.parent_path()) {
    int64_t quota = 0, period = 0, bytes = 0;
    if ((std::ifstream(group / "cpu.max") >> quota >> period ||
         (std::ifstream(group / "cpu.cfs_quota_us") >> quota &&
          std::ifstream(group / "cpu.cfs_period_us") >> period)) &&
        quota > 0 && period > 0)
      limits.processors = int(std::min<int64_t>(limits.processors, (quota - 1) / period + 1));
    for (const char* file : {"memory.max", "memory.limit_in_bytes"})
      if (std::ifstream(group / file) >> bytes && bytes > 0) limits.memory = std::min(limits.memory, size_t(bytes));
  }
  return limits;
}

Limits limits_of_process(const std::string& groups, const std::string& mounts) {
  Limits limits;
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t names = line.find(':') + 1, path = line.find(':', names) + 1;
    std::istringstream controllers(line.substr(names, path - 1 - names) + ',');  // of version 2: one, without a name
    for (std::string name; std::getline(controllers, name, ',');)
      limits = read_limits(concat(mounts, '/', name, line.substr(path)), limits);
  }
  return limits;
}

const Limits& limits() {
  static const Limits read = limits_of_process("/proc/self/cgroup", "/sys/fs/cgroup");
  return read;
}

}  // namespace cairn
