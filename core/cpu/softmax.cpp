#include "core/kernels/softmax.h"

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void softmax_forward(Stream, Rows size, const T* x, T* y) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * cols;
      T* out = y + r * cols;
      const T running_max = maximum(in, cols);
      const T sum = exponentials(in, cols, finite_shift(running_max), out);
      scale(out, cols, sum == 0 ? T(0) : 1 / sum);
    }
  });
}

template <class T>
void softmax_backward(Stream, Rows size, const T* y, const T* dy, T* dx) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *out = y + r * cols, *g = dy + r * cols;
      const T delta = dot(out, g, cols);
      for (int64_t c = 0; c < cols; ++c) dx[r * cols + c] = out[c] * (g[c] - delta);
    }
  });
}

CAIRN_CPU_TYPES(softmax_forward)
CAIRN_CPU_TYPES(softmax_backward)

}  // namespace cairn::cpu
