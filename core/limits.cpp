#include "core/limits.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace cairn {

Limits parse_limits(const std::string& cpu_max, const std::string& memory_max) {
  Limits limits;
  int64_t quota = 0, period = 0, bytes = 0;
  if (std::istringstream(cpu_max) >> quota >> period && quota > 0 && period > 0)
    limits.processors = int(std::min<int64_t>(limits.processors, (quota - 1) / period + 1));
  if (std::istringstream(memory_max) >> bytes && bytes > 0) limits.memory = size_t(bytes);
  return limits;
}

static std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

static Limits read_limits() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::")) {  // the group of version 2
      const std::string folder = "/sys/fs/cgroup" + line.substr(3);
      return parse_limits(first_line(folder + "/cpu.max"), first_line(folder + "/memory.max"));
    }
  return {};
}

const Limits& limits() {
  static const Limits read = read_limits();
  return read;
}

}  // namespace cairn
