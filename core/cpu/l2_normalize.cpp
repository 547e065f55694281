#include "core/kernels/l2_normalize.h"

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// |x| = maximum * norm, with the largest element taken out.
template <class T>
struct Length {
  T maximum = 0, norm;

  Length(const T* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) maximum = std::max(maximum, std::abs(x[i]));  // passes over NaNs
    if (maximum == 0) maximum = 1;
    norm = std::sqrt(sum_of<T>(n, [=, this](int64_t i) { return x[i] / maximum * (x[i] / maximum); }));
  }
  T inverse() const { return norm == 0 ? T(0) : 1 / norm; }
};

}  // namespace

template <class T>
void l2_normalize(Stream, Rows size, const T* x, T* y) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const Length<T> length(x + r * cols, cols);
      for (int64_t c = r * cols; c < (r + 1) * cols; ++c) y[c] = x[c] / length.maximum * length.inverse();
    }
  });
}

template <class T>
void l2_normalize_backward(Stream, Rows size, const T* x, const T* dy, T* dx) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *row = x + r * cols, *g = dy + r * cols;
      const Length<T> length(row, cols);
      const auto y = [&](int64_t c) { return row[c] / length.maximum * length.inverse(); };
      const T along = sum_of<T>(cols, [&](int64_t c) { return y(c) * g[c]; });
      for (int64_t c = 0; c < cols; ++c)
        dx[r * cols + c] = length.norm == 0 ? T(0) : (g[c] - y(c) * along) / length.norm / length.maximum;
    }
  });
}

CAIRN_CPU_TYPES(l2_normalize)
CAIRN_CPU_TYPES(l2_normalize_backward)

}  // namespace cairn::cpu
