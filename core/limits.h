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

// The limits of the group with this folder, from its files cpu.max ("QUOTA PERIOD" or "max PERIOD", in microseconds)
// and memory.max. A file without numbers, or none, is no limit.
Limits read_limits(const std::string& folder);

// The limits of this process, read once.
const Limits& limits();

}  // namespace cairn
