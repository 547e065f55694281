// Time of the device, between events.
//
// Launch. hold: one thread keeps the stream busy until the host says that everything behind it is queued, a fifth of a
// second at most. (The emulator does work as soon as it is queued, so there it would hold for ever.)
#include "core/kernels/timing.h"

#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>

#include "cuda/launch.h"
#include "cuda/launch_log.h"

#ifdef __CUDACC__
#include <cxxabi.h>

#include <new>
#endif

namespace cairn::gpu {
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
  // Both must have happened.
  double seconds_since(const Event& start) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return double(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

#ifdef __CUDACC__
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
    released_ = new (memory_) int(0);
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
#else
struct Hold {
  explicit Hold(Stream) {}
};
#endif

std::string name_of(const void* kernel, SourceLine where) {
  const std::string place = to_string(where), stem = place.substr(0, place.find('.'));
  if (!kernel) return stem + "/cublas";
#if defined(__CUDACC__) && CUDART_VERSION >= 12030
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) == cudaSuccess) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                            std::free);
    // "void cairn::gpu::(anonymous namespace)::attend_mma<float, 64>(...)"
    std::string name = plain ? plain.get() : mangled;
    const std::string anonymous = "(anonymous namespace)";
    if (const size_t at = name.find(anonymous); at != std::string::npos) name.erase(at, anonymous.size());
    name = name.substr(0, name.find_first_of("<("));
    return stem + "/" + name.substr(name.find_last_of(": ") + 1);
  }
  cudaGetLastError();
#endif
  return place;
}

class Log final : public LaunchLog {
 public:
  Log() { launch_log = this; }
  ~Log() { launch_log = nullptr; }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void before(Stream stream, const void* kernel, SourceLine where) override {
    launches_.emplace_back(name_of(kernel, where));
    launches_.back().start.record(stream);
  }
  void after(Stream stream) override { launches_.back().end.record(stream); }

  // Once all of them are done.
  std::vector<KernelTime> times() const {
    std::vector<KernelTime> result;
    for (const Noted& noted : launches_) result.push_back({noted.name, noted.end.seconds_since(noted.start)});
    return result;
  }

 private:
  struct Noted {
    explicit Noted(std::string kernel) : name(std::move(kernel)) {}
    std::string name;
    Event start, end;
  };
  std::deque<Noted> launches_;
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

std::vector<KernelTime> kernel_times(Stream stream, const std::function<void()>& queue) {
  Event end;
  auto hold = std::make_unique<Hold>(stream);  // before the log, which does not note it
  Log log;
  queue();
  end.record(stream);
  hold.reset();
  end.wait();
  return log.times();
}

}  // namespace cairn::gpu
