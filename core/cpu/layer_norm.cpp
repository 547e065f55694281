#include "core/kernels/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void layer_norm_forward(Stream, Rows size, double epsilon, const T* x, const T* weight, const T* bias, T* y,
                        Accum<T>* mean, Accum<T>* rstd) {
  // [lesson 4
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * cols;
      T* out = y + r * cols;
      const T m = sum_of<T>(cols, [=](int64_t c) { return in[c]; }) / T(cols);
      const T variance = sum_of<T>(cols, [=](int64_t c) { return (in[c] - m) * (in[c] - m); }) / T(cols);
      const T s = 1 / std::sqrt(variance + T(epsilon));
      for (int64_t c = 0; c < cols; ++c) out[c] = (in[c] - m) * s * weight[c] + bias[c];
      mean[r] = m;
      rstd[r] = s;
    }
  });
  // lesson 4]
}

template <class T>
void layer_norm_backward(Stream, Rows size, const T* x, const T* weight, const Accum<T>* mean, const Accum<T>* rstd,
                         const T* dy, T* dx, Accum<T>* dweight, Accum<T>* dbias) {
  // [lesson 4
  // With z = (x - mean) rstd and h = dy weight:
  // dx = rstd (h - mean(h) - z mean(h z)),  dweight = sum dy z,  dbias = sum dy.
  const int64_t cols = size.cols, chunk = 128, chunks = (size.rows + chunk - 1) / chunk;
  std::vector<T> partial(size_t(2 * chunks * cols));  // of dweight and dbias: two rows a chunk
  parallel_for(size.rows, chunk, [&](int64_t begin, int64_t end) {
    T* partial_weight = partial.data() + begin / chunk * 2 * cols;
    T* partial_bias = partial_weight + cols;
    for (int64_t r = begin; r < end; ++r) {
      const T *in = x + r * cols, *g = dy + r * cols;
      const T m = mean[r], s = rstd[r];
      const T mean_h = sum_of<T>(cols, [=](int64_t c) { return g[c] * weight[c]; }) / T(cols);
      const T mean_hz = sum_of<T>(cols, [=](int64_t c) { return g[c] * weight[c] * (in[c] - m); }) * s / T(cols);
      T* out = dx + r * cols;
      // The three rows do not overlap, but GCC cannot know.
#pragma GCC ivdep
      for (int64_t c = 0; c < cols; ++c) {
        const T z = (in[c] - m) * s;
        out[c] = s * (g[c] * weight[c] - mean_h - z * mean_hz);
        partial_weight[c] += g[c] * z;
        partial_bias[c] += g[c];
      }
    }
  });
  std::fill(dweight, dweight + cols, T(0));
  std::fill(dbias, dbias + cols, T(0));
  for (int64_t i = 0; i < chunks; ++i) {
    add_scaled(dweight, cols, T(1), partial.data() + i * 2 * cols);
    add_scaled(dbias, cols, T(1), partial.data() + (i * 2 + 1) * cols);
  }
  // lesson 4]
}

CAIRN_CPU_TYPES(layer_norm_forward)
CAIRN_CPU_TYPES(layer_norm_backward)

}  // namespace cairn::cpu
