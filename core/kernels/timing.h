#pragma once
// Time by the clock of the CUDA device.
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"

namespace cairn::gpu {

// Seconds that the device takes for what `queue` puts on the stream. All of it is queued before the device begins, so
// the host's own time does not count, unless `queue` waits for the device. Waits until the work is done.
double device_seconds(Stream stream, const std::function<void()>& queue);

// One launch: "attention/attend_mma" is the kernel attend_mma of cuda/attention.cu. On the emulator, and with CUDA
// before 12.3, which do not tell kernels' names, it is "attention.cu:210", the line of the launch; "gemm/cublas" is
// cuBLAS.
struct KernelTime {
  std::string name;
  double seconds = 0;
};
// What each launch takes that `queue` puts on the stream, in their order. An event before and after each adds about a
// microsecond to it. Waits until the work is done. Error: DeviceError, while work is recorded.
std::vector<KernelTime> kernel_times(Stream stream, const std::function<void()>& queue);

}  // namespace cairn::gpu
