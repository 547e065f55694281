#pragma once
// The limits of this process's control groups (Linux's cgroups, versions 1 and 2), such as those of a container. The
// system kills a process that takes more memory, and slows down one that uses more processor time.
#include <cstddef>
#include <limits>
#include <string>

namespace cairn {

struct Limits {
  int processors = std::numeric_limits<int>::max();    // seconds of processor time per second, rounded up
  size_t memory = std::numeric_limits<size_t>::max();  // bytes
};

// The smallest of `limits`, those of the group with this folder, and those of the groups around it, whose folders are
// around its folder (a pod, a slice of systemd, a job of Slurm). Version 2 has the files cpu.max ("QUOTA PERIOD" or
// "max PERIOD", in microseconds) and memory.max; version 1 has cpu.cfs_quota_us, cpu.cfs_period_us and
// memory.limit_in_bytes. A file without numbers, or none, is no limit: in a container the folder may be missing, and
// those around it count.
Limits read_limits(const std::string& folder, Limits limits = {});

// The smallest limits of a process's groups. `groups` names its /proc/PID/cgroup, with lines "ID:CONTROLLERS:PATH". In
// the folder `mounts`, version 2 has a folder PATH, version 1 a folder CONTROLLER/PATH for each controller.
Limits limits_of_process(const std::string& groups, const std::string& mounts);

// The limits of this process, read once.
const Limits& limits();

}  // namespace cairn
