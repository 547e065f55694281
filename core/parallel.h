#pragma once
// Loops over threads.
//
// Work is cut into chunks of a size that depends on the problem alone, never on the number of threads, and what chunks
// sum up is combined in their order. So any number of threads gives the same bits.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/error.h"

namespace cairn {

// Threads used from now on. Error: less than 1. At start: as many as the machine offers this process, its control
// group's limit included.
void set_threads(int threads);
int threads();

namespace detail {
using ChunkBody = void (*)(void* closure, int64_t chunk);
void run_chunks(int64_t chunks, ChunkBody body, void* closure);
}  // namespace detail

// f(i) for i in [0, n), each i a task of its own. Called inside another loop that runs on several threads it runs in
// place. An exception that f throws comes out of the loop (one of them, if several do).
template <class F>
void parallel_tasks(int64_t n, F&& f) {
  detail::run_chunks(
      n, [](void* closure, int64_t i) { (*static_cast<std::remove_reference_t<F>*>(closure))(i); }, &f);
}

// f(begin, end) over consecutive pieces of [0, n), `grain` long (the last one may be shorter). Error: grain < 1.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  check(grain >= 1, "parallel_for: grain = ", grain, ", expected at least 1");
  const int64_t pieces = n / grain + (n % grain > 0);
  parallel_tasks(pieces, [&](int64_t i) { f(i * grain, i * grain + std::min(grain, n - i * grain)); });
}

}  // namespace cairn
