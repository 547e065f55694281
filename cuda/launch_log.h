#pragma once
// Notes each launch of a thread while gpu::kernel_times (core/kernels/timing.h) looks at them.
#include "core/device.h"
#include "cuda/source_line.h"

namespace cairn::gpu {

class LaunchLog {
 public:
  // Around a launch; `kernel` is null for one of cuBLAS.
  virtual void before(Stream stream, const void* kernel, SourceLine where) = 0;
  virtual void after(Stream stream) = 0;

 protected:
  ~LaunchLog() = default;
};
// Null unless this thread's launches are noted.
inline thread_local LaunchLog* launch_log = nullptr;

}  // namespace cairn::gpu
