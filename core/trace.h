#pragma once
// Records what runs, when and for how long, as named spans of time. Spans can be nested.
//
//   trace::start();
//   {
//     const trace::Span span("forward", "program");
//     ...
//   }
//   const trace::Recording recording = trace::stop();
//
// Kernels (core/dispatch.h), gradients (the tape), modules and the optimizer open spans by themselves. Before start(),
// a span costs a few nanoseconds. On CUDA a kernel's span is the time to queue it, not to run it, unless the recording
// waits for the device (core/timing.h).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace cairn::trace {

struct Event {
  const char* name;      // "softmax"
  const char* category;  // "kernel", "backward", "module" or "program"
  std::string detail;    // shapes and the like; may be empty
  int64_t begin = 0;     // nanoseconds since start()
  int64_t duration = 0;  // nanoseconds
  int thread = 0;        // 0, 1, ... in the order in which threads first closed one
};

struct Recording {
  std::vector<Event> events;  // by their begin; an outer span comes before the spans inside it
  int64_t dropped = 0;        // spans beyond the maximum
};

// Starts a new recording, on all threads; an earlier one is dropped. It keeps the first `maximum` spans that end, about
// 100 bytes each. `before_end` is called at the end of each span, before its duration is taken: it may wait for the
// device.
void start(size_t maximum = 1'000'000, void (*before_end)() noexcept = nullptr);
// Ends the recording and returns it. Spans that are still open are not part of it.
Recording stop();

namespace detail {
inline std::atomic<bool> recording{false};
}  // namespace detail

inline bool recording() { return detail::recording.load(std::memory_order_relaxed); }

// A span from its construction to its destruction, on one thread.
class Span {
 public:
  // Name and category are kept as pointers: use literals, or strings that live as long as the program. The details are
  // written one after another, only while recording.
  template <class... Details>
  explicit Span(const char* name, const char* category, const Details&... details) {
    if (recording()) [[unlikely]]
      open({name, category, concat(details...)});
  }
  ~Span() {
    if (session_) [[unlikely]]
      close();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void open(Event event);
  void close();

  Event event_{};
  uint64_t session_ = 0;  // the recording that it belongs to; 0: none
};

}  // namespace cairn::trace
