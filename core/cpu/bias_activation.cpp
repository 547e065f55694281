#include "core/kernels/bias_activation.h"

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void bias_activation_forward(Stream, Activation activation, Rows size, const T* x, const T* bias, T* y) {
  choose(activation, [&]<Unary f>() {
    parallel_for(size.rows, rows_a_task(size.cols), [=, cols = size.cols](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = apply<f>(x[r * cols + c] + bias[c]);
    });
  });
}

template <class T>
void bias_activation_backward(Stream, Activation activation, Rows size, const T* x, const T* bias, const T* dy, T* dx) {
  choose(activation, [&]<Unary f>() {
    parallel_for(size.rows, rows_a_task(size.cols), [=, cols = size.cols](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < cols; ++c)
          dx[r * cols + c] = derivative<f>(x[r * cols + c] + bias[c]) * dy[r * cols + c];
    });
  });
}

CAIRN_CPU_TYPES(bias_activation_forward)
CAIRN_CPU_TYPES(bias_activation_backward)

}  // namespace cairn::cpu
