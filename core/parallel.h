#pragma once
// Loops over threads. (A child of fork() may only exec or _exit: it lacks these threads, and exit() waits for them
// forever.)
//
// Work is cut into chunks. Their size depends on the problem alone, never on the number of threads, and partial sums of
// chunks are added in order. So any number of threads gives the same bits.
#include <algorithm>
#include <cstdint>
#include <functional>

#include "core/error.h"

namespace cairn {

// The number of threads for the loops below. Error: less than 1. The default is the number of processors that this
// process may use: its affinity and the limits of its control groups count.
void set_threads(int threads);
int threads();

namespace detail {
void run_tasks(int64_t n, const std::function<void(int64_t)>& task);
}  // namespace detail

// Calls f(i) for i in [0, n); each i is a task. Inside a task of another such loop, it runs on the calling thread
// alone. The loop throws the exception that f throws; one of them if there are several.
template <class F>
void parallel_tasks(int64_t n, F&& f) {
  detail::run_tasks(n, std::ref(f));  // a std::function holds a reference without allocating
}

// Calls f(begin, end) for consecutive chunks of [0, n) of `grain` elements; the last one may be shorter. Error: grain
// < 1.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  check(grain >= 1, "parallel_for: grain = ", grain, ", expected at least 1");
  const int64_t chunks = n / grain + (n % grain > 0);
  parallel_tasks(chunks, [&](int64_t i) { f(i * grain, i * grain + std::min(grain, n - i * grain)); });
}

}  // namespace cairn
