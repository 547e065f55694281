#include "core/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"

namespace cairn::cpu {
namespace {

template <class T>
T combine(Reduce op, T a, T b) {
  if (op == Reduce::sum) return a + b;
  return std::isnan(a) || a > b ? a : b;
}

// One row of consecutive numbers, over 16 running results so that the order is fixed and the loop vectorizes.
template <Reduce op, class T>
T reduce_row(const T* x, int64_t n, T start) {
  constexpr int lanes = 16;
  T lane[lanes];
  for (T& value : lane) value = start;
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    for (int l = 0; l < lanes; ++l) lane[l] = combine(op, lane[l], x[j + l]);
  T result = lane[0];
  for (int l = 1; l < lanes; ++l) result = combine(op, result, lane[l]);
  for (; j < n; ++j) result = combine(op, result, x[j]);
  return result;
}

template <Reduce op, class T>
void reduce_as(Reduction size, const T* x, T* y) {
  const T start = op == Reduce::sum ? T(0) : -std::numeric_limits<T>::infinity();
  const int64_t outer = size.outer, n = size.n, inner = size.inner;
  if (inner == 1) {
    // Long rows are cut into pieces of a fixed length, whose results are combined in order.
    constexpr int64_t piece = 1 << 15;
    const int64_t pieces = std::max<int64_t>(1, (n + piece - 1) / piece);
    std::vector<T> partial(size_t(outer * pieces));
    parallel_for(outer * pieces, std::max<int64_t>(1, piece / std::max<int64_t>(1, n)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t row = task / pieces, first = task % pieces * piece;
                     partial[size_t(task)] = reduce_row<op>(x + row * n + first, std::min(piece, n - first), start);
                   }
                 });
    for (int64_t row = 0; row < outer; ++row) {
      T result = partial[size_t(row * pieces)];
      for (int64_t i = 1; i < pieces; ++i) result = combine(op, result, partial[size_t(row * pieces + i)]);
      y[row] = result;
    }
    return;
  }
  // Columns: pieces of rows, each summed into a row of its own, combined in order.
  constexpr int64_t piece = 512;
  const int64_t pieces = std::max<int64_t>(1, (n + piece - 1) / piece);
  std::vector<T> partial(size_t(outer * pieces * inner), start);
  parallel_tasks(outer * pieces, [&](int64_t task) {
    const int64_t o = task / pieces, first = task % pieces * piece, last = std::min(n, first + piece);
    T* out = partial.data() + task * inner;
    for (int64_t j = first; j < last; ++j)
      for (int64_t i = 0; i < inner; ++i) out[i] = combine(op, out[i], x[(o * n + j) * inner + i]);
  });
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      T result = partial[size_t(o * pieces * inner + i)];
      for (int64_t p = 1; p < pieces; ++p) result = combine(op, result, partial[size_t((o * pieces + p) * inner + i)]);
      y[o * inner + i] = result;
    }
}

}  // namespace

template <class T>
void reduce(Stream, Reduce op, Reduction size, const T* x, T* y) {
  if (op == Reduce::sum)
    reduce_as<Reduce::sum>(size, x, y);
  else
    reduce_as<Reduce::max>(size, x, y);
}

CAIRN_CPU_TYPES(reduce)

}  // namespace cairn::cpu
