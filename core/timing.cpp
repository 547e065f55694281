#include "core/timing.h"

#include <chrono>
#include <string_view>

#include "core/dispatch.h"
#include "core/kernels/memory.h"
#include "core/trace.h"

namespace cairn {
namespace {

// Destructors call this, so it does not throw: an error of the device shows up in the next call as well.
void wait_for_device() noexcept try {
  CAIRN_ON_CUDA("timing", gpu::synchronize(current_stream(Device::cuda)));
} catch (const Error&) {
}

}  // namespace

double seconds_of(Device device, const std::function<void()>& work) {
  if (device == Device::cuda) return CAIRN_ON_CUDA("timing", gpu::device_seconds(current_stream(device), work));
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::map<std::string, double> operation_seconds(Device device, const std::function<void()>& work) {
  const bool on_cuda = device == Device::cuda;
  if (on_cuda) wait_for_device();
  trace::start(1'000'000, on_cuda ? wait_for_device : nullptr);
  try {
    work();
  } catch (...) {
    trace::stop();
    throw;
  }
  std::map<std::string, double> seconds;
  for (const trace::Event& event : trace::stop().events)
    if (std::string_view(event.category) == "kernel") seconds[event.name] += double(event.duration) * 1e-9;
  return seconds;
}

}  // namespace cairn
