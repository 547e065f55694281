// Time of the device, between two events.
//
// Launch. hold: one thread keeps the stream busy until the host has queued the work to be timed, a fifth of a second at
// most. (On the emulator the host's clock is used, because a call is done when it returns.)
#include "core/kernels/timing.h"

#include <chrono>

#include "cuda/launch.h"

namespace cairn::gpu {

#ifdef __CUDACC__
namespace {

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_)); }
  ~Event() {
    if (cudaEventDestroy(event_) != cudaSuccess) cudaGetLastError();
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream) { check_cuda(cudaEventRecord(event_, native(stream))); }
  void wait() { check_cuda(cudaEventSynchronize(event_)); }
  // Both events must have happened.
  double seconds_since(const Event& start) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return double(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

__global__ void hold(const volatile int* released) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    __nanosleep(500);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (*released == 0 && now - start < 200'000'000);
}

// Holds the stream as long as it lives.
class Hold {
 public:
  explicit Hold(Stream stream) : stream_(stream) {
    check_cuda(cudaMallocHost(&memory_, sizeof(int)));
    released_ = static_cast<volatile int*>(memory_);
    *released_ = 0;
    launch(hold, {1, 1, 0, stream}, released_);
  }
  ~Hold() {
    *released_ = 1;
    if (cudaStreamSynchronize(native(stream_)) != cudaSuccess) cudaGetLastError();
    if (cudaFreeHost(memory_) != cudaSuccess) cudaGetLastError();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Stream stream_;
  void* memory_ = nullptr;
  volatile int* released_ = nullptr;
};

}  // namespace

double device_seconds(Stream stream, const std::function<void()>& queue) {
  Event start, end;
  {
    const Hold hold(stream);
    start.record(stream);
    queue();
    end.record(stream);
  }
  end.wait();
  return end.seconds_since(start);
}
#else
double device_seconds(Stream, const std::function<void()>& queue) {
  const auto start = std::chrono::steady_clock::now();
  queue();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
#endif

}  // namespace cairn::gpu
