#include "core/trace.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

namespace cairn::trace {
namespace {

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

int this_thread() {
  static std::atomic<int> threads{0};
  thread_local const int number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

struct Recorder {
  std::atomic<void (*)() noexcept> before_end{nullptr};
  std::mutex mutex;  // of everything below
  Recording kept;
  size_t maximum = 0;
  uint64_t session = 0;
  int64_t start = 0;
};

Recorder& recorder() {
  static Recorder* const instance = new Recorder;  // never destroyed: spans of other threads may close late
  return *instance;
}

}  // namespace

void start(size_t maximum, void (*before_end)() noexcept) {
  Recorder& r = recorder();
  const std::lock_guard guard(r.mutex);
  r.kept = {};
  r.maximum = maximum;
  r.before_end = before_end;
  ++r.session;
  r.start = now();
  detail::recording = true;
}

Recording stop() {
  Recorder& r = recorder();
  const std::lock_guard guard(r.mutex);
  detail::recording = false;
  ++r.session;  // spans that are still open belong to none
  Recording result = std::exchange(r.kept, {});
  // Spans arrive as they close, inner ones first.
  std::reverse(result.events.begin(), result.events.end());
  std::stable_sort(result.events.begin(), result.events.end(), [](const Event& a, const Event& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.duration > b.duration;
  });
  return result;
}

void Span::open(Event event) {
  Recorder& r = recorder();
  const std::lock_guard guard(r.mutex);
  if (!trace::recording()) return;
  event_ = std::move(event);
  event_.begin = now() - r.start;
  session_ = r.session;
}

void Span::close() {
  Recorder& r = recorder();
  if (const auto before_end = r.before_end.load()) before_end();
  const int64_t end = now();
  const std::lock_guard guard(r.mutex);
  if (session_ != r.session) return;
  event_.duration = end - r.start - event_.begin;
  event_.thread = this_thread();
  if (r.kept.events.size() < r.maximum)
    r.kept.events.push_back(std::move(event_));
  else
    ++r.kept.dropped;
}

}  // namespace cairn::trace
