#pragma once
// What the control groups of this process (Linux's cgroups, version 1 and 2) and of those around them leave to it. A
// container's limits are such. Who takes more memory is killed without a word; who runs more threads waits.
#include <cstddef>
#include <limits>
#include <string>

namespace cairn {

struct Limits {
  int processors = std::numeric_limits<int>::max();    // of processor time in a second, rounded up, at least 1
  size_t memory = std::numeric_limits<size_t>::max();  // bytes
};

// The limits that stand below `root`/proc/self/cgroup and `root`/sys/fs/cgroup. What cannot be read is no limit.
Limits read_limits(const std::string& root);

// Those of this process, read once. The environment variable CAIRN_SYSTEM_ROOT names another root (for tests).
const Limits& limits();

}  // namespace cairn
