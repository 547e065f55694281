#include "core/kernels/reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

// The summands are cut into chunks of a fixed length; the chunks' sums are added in order.
template <class T>
void sum(Stream, Reduction size, const T* x, Accum<T>* y) {
  const int64_t outer = size.outer, n = size.n, inner = size.inner;
  const int64_t chunk = inner == 1 ? 1 << 15 : 512, chunks = std::max<int64_t>(1, (n + chunk - 1) / chunk);
  const int64_t chunks_a_task = inner == 1 ? std::max<int64_t>(1, chunk / std::max<int64_t>(1, n)) : 1;
  std::vector<T> partial(size_t(outer * chunks * inner));
  parallel_for(outer * chunks, chunks_a_task, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part % chunks * chunk, count = std::min(chunk, n - first);
      const T* const from = x + (part / chunks * n + first) * inner;
      T* const to = partial.data() + part * inner;
      if (inner == 1)
        *to = sum_of<T>(count, [=](int64_t i) { return from[i]; });
      else
        for (int64_t j = 0; j < count; ++j) add_scaled(to, inner, T(1), from + j * inner);
    }
  });
  for (int64_t o = 0; o < outer; ++o) {
    const T* const parts = partial.data() + o * chunks * inner;
    std::copy_n(parts, inner, y + o * inner);
    for (int64_t i = 1; i < chunks; ++i) add_scaled(y + o * inner, inner, T(1), parts + i * inner);
  }
}

// The first column where `holds` is true; INT32_MAX if there is none. Without branches, so that it vectorizes.
template <class T, class F>
static int32_t first_where(const T* row, int64_t cols, F holds) {
  int32_t first = INT32_MAX;
  for (int32_t c = 0; c < int32_t(cols); ++c) first = std::min(first, holds(row[c]) ? c : INT32_MAX);
  return first;
}

template <class T>
void argmax(Stream, Rows size, const T* x, int32_t* columns) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * cols;
      columns[r] = first_where(row, cols, [](T value) { return value != value; });
      if (columns[r] != INT32_MAX) continue;
      columns[r] = first_where(row, cols, [largest = maximum(row, cols)](T value) { return value == largest; });
    }
  });
}

CAIRN_CPU_TYPES(sum)
CAIRN_CPU_TYPES(argmax)

}  // namespace cairn::cpu
