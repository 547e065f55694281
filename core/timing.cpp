#include "core/timing.h"

#include <chrono>
#include <string_view>

#include "core/dispatch.h"
#include "core/kernels/timing.h"
#include "core/trace.h"

namespace cairn {

double seconds_of(Device device, const std::function<void()>& work) {
  if (device == Device::cuda) return CAIRN_ON_CUDA("timing", gpu::device_seconds(current_stream(device), work));
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::map<std::string, double> kernel_seconds(Device device, const std::function<void()>& work) {
  std::map<std::string, double> seconds;
  if (device == Device::cuda) {
    for (const gpu::KernelTime& launch : CAIRN_ON_CUDA("timing", gpu::kernel_times(current_stream(device), work)))
      seconds[launch.name] += launch.seconds;
    return seconds;
  }
  trace::start();
  work();
  for (const trace::Event& event : trace::stop().events)
    if (std::string_view(event.category) == "kernel") seconds[event.name] += double(event.duration) * 1e-9;
  return seconds;
}

}  // namespace cairn
