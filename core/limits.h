#pragma once
// What the control group of this process (Linux's cgroups, version 2) leaves to it. A container's limits are such. Who
// takes more memory is killed without a word; who runs more threads waits.
#include <cstddef>
#include <limits>
#include <string>

namespace cairn {

struct Limits {
  int processors = std::numeric_limits<int>::max();    // of processor time in a second, rounded up, at least 1
  size_t memory = std::numeric_limits<size_t>::max();  // bytes
};

// From the texts of a group's files cpu.max ("QUOTA PERIOD" or "max PERIOD", in microseconds) and memory.max. What is
// no number is no limit.
Limits parse_limits(const std::string& cpu_max, const std::string& memory_max);

// Those of this process, read once. What cannot be read is no limit.
const Limits& limits();

}  // namespace cairn
