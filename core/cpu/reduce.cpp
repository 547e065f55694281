#include "core/kernels/reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// One row of consecutive numbers, over 16 running sums so that the order is fixed and the loop vectorizes.
template <class T>
T sum_row(const T* x, int64_t n) {
  constexpr int lanes = 16;
  T lane[lanes] = {};
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    for (int l = 0; l < lanes; ++l) lane[l] += x[j + l];
  T result = lane[0];
  for (int l = 1; l < lanes; ++l) result += lane[l];
  for (; j < n; ++j) result += x[j];
  return result;
}

}  // namespace

template <class T>
void sum(Stream, Reduction size, const T* x, T* y) {
  const int64_t outer = size.outer, n = size.n, inner = size.inner;
  if (inner == 1) {
    // Long rows are cut into pieces of a fixed length, whose sums are added in order.
    constexpr int64_t piece = 1 << 15;
    const int64_t pieces = std::max<int64_t>(1, (n + piece - 1) / piece);
    std::vector<T> partial(size_t(outer * pieces));
    parallel_for(outer * pieces, std::max<int64_t>(1, piece / std::max<int64_t>(1, n)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t row = task / pieces, first = task % pieces * piece;
                     partial[size_t(task)] = sum_row(x + row * n + first, std::min(piece, n - first));
                   }
                 });
    for (int64_t row = 0; row < outer; ++row) {
      T result = partial[size_t(row * pieces)];
      for (int64_t i = 1; i < pieces; ++i) result += partial[size_t(row * pieces + i)];
      y[row] = result;
    }
    return;
  }
  // Columns: pieces of rows, each summed into a row of its own, added in order.
  constexpr int64_t piece = 512;
  const int64_t pieces = std::max<int64_t>(1, (n + piece - 1) / piece);
  std::vector<T> partial(size_t(outer * pieces * inner));
  parallel_tasks(outer * pieces, [&](int64_t task) {
    const int64_t o = task / pieces, first = task % pieces * piece, last = std::min(n, first + piece);
    T* out = partial.data() + task * inner;
    for (int64_t j = first; j < last; ++j)
      for (int64_t i = 0; i < inner; ++i) out[i] += x[(o * n + j) * inner + i];
  });
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      T result = partial[size_t(o * pieces * inner + i)];
      for (int64_t p = 1; p < pieces; ++p) result += partial[size_t((o * pieces + p) * inner + i)];
      y[o * inner + i] = result;
    }
}

CAIRN_CPU_TYPES(sum)

}  // namespace cairn::cpu
