#include "core/limits.h"

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace cairn {

Limits read_limits(const std::string& folder) {
  Limits limits;
  int64_t quota = 0, period = 0, bytes = 0;
  if (std::ifstream(folder + "/cpu.max") >> quota >> period && quota > 0 && period > 0)
    limits.processors = int(std::min<int64_t>(limits.processors, (quota - 1) / period + 1));
  if (std::ifstream(folder + "/memory.max") >> bytes && bytes > 0) limits.memory = size_t(bytes);
  return limits;
}

static Limits own_limits() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::")) return read_limits("/sys/fs/cgroup" + line.substr(3));  // the group of version 2
  return {};
}

const Limits& limits() {
  static const Limits read = own_limits();
  return read;
}

}  // namespace cairn
