#include "core/kernels/sort.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
static bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(x);
  else
    return false;
}

template <class T>
void stable_sort(Stream, Rows size, const T* x, int32_t* permutation) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * cols;
      int32_t* order = permutation + r * cols;
      std::iota(order, order + cols, 0);
      std::stable_sort(order, order + cols,
                       [row](int32_t a, int32_t b) { return row[a] < row[b] || (!is_nan(row[a]) && is_nan(row[b])); });
    }
  });
}

template <class T>
void top_k(Stream, Rows size, int64_t k, const T* x, T* values, int32_t* columns) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    std::vector<int32_t> order(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * cols;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [row](int32_t a, int32_t b) {
        if (is_nan(row[a]) != is_nan(row[b])) return is_nan(row[a]);
        return row[a] > row[b] || (!(row[a] < row[b]) && a < b);
      });
      for (int64_t i = 0; i < k; ++i) {
        columns[r * k + i] = order[size_t(i)];
        values[r * k + i] = row[order[size_t(i)]];
      }
    }
  });
}

#define INSTANTIATE(T)                                         \
  template void stable_sort(Stream, Rows, const T*, int32_t*); \
  template void top_k(Stream, Rows, int64_t, const T*, T*, int32_t*);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)

}  // namespace cairn::cpu
