#pragma once
// The limits of this process's control group (Linux's cgroups, version 2), such as those of a container. The system
// kills a process that takes more memory, and slows down one that uses more processor time.
#include <cstddef>
#include <limits>
#include <string>

namespace cairn {

struct Limits {
  int processors = std::numeric_limits<int>::max();    // seconds of processor time per second, rounded up
  size_t memory = std::numeric_limits<size_t>::max();  // bytes
};

// The limits in the texts of a group's files cpu.max ("QUOTA PERIOD" or "max PERIOD", in microseconds) and memory.max.
// A text without numbers is no limit.
Limits parse_limits(const std::string& cpu_max, const std::string& memory_max);

// The limits of this process, read once. A file that cannot be read is no limit.
const Limits& limits();

}  // namespace cairn
