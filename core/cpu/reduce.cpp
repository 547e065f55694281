#include "core/kernels/reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void sum(Stream, Reduction size, const T* x, T* y) {
  const int64_t outer = size.outer, n = size.n, inner = size.inner;
  if (inner == 1) {
    // Long rows are cut into chunks of a fixed length; the chunks' sums are added in order.
    constexpr int64_t chunk = 1 << 15;
    const int64_t chunks = std::max<int64_t>(1, (n + chunk - 1) / chunk);
    std::vector<T> partial(size_t(outer * chunks));
    parallel_for(outer * chunks, std::max<int64_t>(1, chunk / std::max<int64_t>(1, n)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t row = task / chunks, first = task % chunks * chunk;
                     const T* from = x + row * n + first;
                     partial[size_t(task)] = sum_of<T>(std::min(chunk, n - first), [=](int64_t i) { return from[i]; });
                   }
                 });
    for (int64_t row = 0; row < outer; ++row) {
      T result = partial[size_t(row * chunks)];
      for (int64_t i = 1; i < chunks; ++i) result += partial[size_t(row * chunks + i)];
      y[row] = result;
    }
    return;
  }
  // Sums of columns: each chunk of rows gives one row of sums, and these are added in order.
  constexpr int64_t chunk = 512;
  const int64_t chunks = std::max<int64_t>(1, (n + chunk - 1) / chunk);
  std::vector<T> partial(size_t(outer * chunks * inner));
  parallel_tasks(outer * chunks, [&](int64_t task) {
    const int64_t o = task / chunks, first = task % chunks * chunk, last = std::min(n, first + chunk);
    T* out = partial.data() + task * inner;
    for (int64_t j = first; j < last; ++j)
      for (int64_t i = 0; i < inner; ++i) out[i] += x[(o * n + j) * inner + i];
  });
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      T result = partial[size_t(o * chunks * inner + i)];
      for (int64_t p = 1; p < chunks; ++p) result += partial[size_t((o * chunks + p) * inner + i)];
      y[o * inner + i] = result;
    }
}

CAIRN_CPU_TYPES(sum)

}  // namespace cairn::cpu
