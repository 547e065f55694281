// Time of the device, between two events. (On the emulator the host's clock is used, because a call is done when it
// returns.)
#include <chrono>

#include "core/kernels/memory.h"
#include "cuda/launch.h"

namespace cairn::gpu {

#ifdef __CUDACC__
namespace {

struct Event {
  cudaEvent_t event = nullptr;

  Event() { check_cuda(cudaEventCreate(&event)); }
  ~Event() {
    if (cudaEventDestroy(event) != cudaSuccess) cudaGetLastError();
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

}  // namespace

double device_seconds(Stream stream, const std::function<void()>& queue) {
  const Event start, end;
  check_cuda(cudaEventRecord(start.event, native(stream)));
  queue();
  check_cuda(cudaEventRecord(end.event, native(stream)));
  check_cuda(cudaEventSynchronize(end.event));
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, start.event, end.event));
  return double(milliseconds) * 1e-3;
}
#else
double device_seconds(Stream, const std::function<void()>& queue) {
  const auto start = std::chrono::steady_clock::now();
  queue();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
#endif

}  // namespace cairn::gpu
