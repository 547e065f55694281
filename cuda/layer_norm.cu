// Layer normalization over rows (Ba, Kiros, Hinton 2016), and its gradient.
//
//   y = z weight + bias,  z = (x - mean) rstd,  rstd = 1 / sqrt(variance + epsilon)
//   dx = rstd (h - mean(h) - z mean(h z)) with h = dy weight,  dweight = sum_r dy z,  dbias = sum_r dy
//
// x, y, dy, dx [rows, cols], weight, bias and their gradients [cols] in float32 or bfloat16; mean, rstd [rows] and all
// arithmetic in float32. The variance is computed from differences from the mean, in a second pass over the row.
//
// Launch. y and dx: a warp takes a row of up to 1024 elements, four rows a block. A block of 256 threads takes a longer
// row. They go over it three times for y, twice for dx. Elements move 16 bytes at a time, or one by one where rows do
// not start at multiples of 16 bytes; the order of sums is the same. dweight and dbias are sums of columns
// (reduce.cuh). Traffic of n = rows * cols elements of e bytes: forward 2 e n, the floor; backward 6 e n. The floor of
// backward is 3 e n: x and dy are read again for dweight, and dy for dbias. Later readings of a row do not count: they
// come from the L1 cache, where a warp's row has at most 4 KB an operand, or from the L2 cache. Bound by memory.
#include "core/kernels/layer_norm.h"

#include <cmath>

#include "cuda/common.cuh"
#include "cuda/reduce.cuh"

namespace cairn::gpu {
namespace {

template <class T, int lanes, bool packs>
__global__ void __launch_bounds__(row_threads<lanes>)
    normalize(Rows size, float epsilon, const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd) {
  const int64_t cols = size.cols;
  each_row<lanes>(size.rows, [&](int64_t row) {
    const T* const from = x + row * cols;
    float sum = 0, squares = 0;
    each_chunk<lanes>(cols, [&](int64_t c) {
      for (const float value : load_chunk<packs>(from, cols, c).element) sum += value;
    });
    const float m = row_reduce<lanes>(sum, 0.0f, Sum{}) / float(cols);
    each_chunk<lanes>(cols, [&](int64_t c) {
      for (const float value : load_chunk<packs>(from, cols, c, m).element)
        squares = fmaf(value - m, value - m, squares);
    });
    const float s = 1 / sqrtf(row_reduce<lanes>(squares, 0.0f, Sum{}) / float(cols) + epsilon);
    each_chunk<lanes>(cols, [&](int64_t c) {
      const auto w = load_chunk<packs>(weight, cols, c), b = load_chunk<packs>(bias, cols, c);
      Chunk chunk = load_chunk<packs>(from, cols, c);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k)
        chunk.element[k] = fmaf((chunk.element[k] - m) * s, w.element[k], b.element[k]);
      store_chunk<packs>(chunk, y + row * cols, cols, c);
    });
    if (row_lane<lanes>() == 0) {
      mean[row] = m;
      rstd[row] = s;
    }
  });
}

// dx needs these of a chunk. Beyond the end of a row, dy and weight are 0.
struct Terms {
  Chunk dy, weight, z;
};
template <bool packs, class T>
__device__ Terms load_terms(const T* x, const T* dy, const T* weight, int64_t cols, int64_t c, float mean, float rstd) {
  Terms result{load_chunk<packs>(dy, cols, c), load_chunk<packs>(weight, cols, c), load_chunk<packs>(x, cols, c)};
  for (float& value : result.z.element) value = (value - mean) * rstd;
  return result;
}

template <class T, int lanes, bool packs>
__global__ void __launch_bounds__(row_threads<lanes>)
    gradient(Rows size, const T* x, const T* weight, const float* mean, const float* rstd, const T* dy, T* dx) {
  const int64_t cols = size.cols;
  each_row<lanes>(size.rows, [&](int64_t row) {
    const int64_t start = row * cols;
    const float m = mean[row], s = rstd[row];
    const auto terms = [&](int64_t c) { return load_terms<packs>(x + start, dy + start, weight, cols, c, m, s); };
    float sum_h = 0, sum_hz = 0;
    each_chunk<lanes>(cols, [&](int64_t c) {
      const auto [g, w, z] = terms(c);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k) {
        sum_h = fmaf(g.element[k], w.element[k], sum_h);
        sum_hz = fmaf(g.element[k] * w.element[k], z.element[k], sum_hz);
      }
    });
    const float mean_h = row_reduce<lanes>(sum_h, 0.0f, Sum{}) / float(cols);
    const float mean_hz = row_reduce<lanes>(sum_hz, 0.0f, Sum{}) / float(cols);
    each_chunk<lanes>(cols, [&](int64_t c) {
      auto [g, w, z] = terms(c);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k)
        g.element[k] = s * fmaf(-z.element[k], mean_hz, fmaf(g.element[k], w.element[k], -mean_h));
      store_chunk<packs>(g, dx + start, cols, c);
    });
  });
}

// dy z of a row and a column. The sum over rows is dweight.
template <class T>
struct WeightGradient {
  const T *x, *dy;
  const float *mean, *rstd;
  int64_t cols;

  __device__ float operator()(int64_t, int64_t row, int64_t column) const {
    const int64_t at = row * cols + column;
    return float(dy[at]) * (float(x[at]) - mean[row]) * rstd[row];
  }
};

}  // namespace

template <class T>
void layer_norm_forward(Stream stream, Rows size, double epsilon, const T* x, const T* weight, const T* bias, T* y,
                        Accum<T>* mean, Accum<T>* rstd) {
  if (size.rows == 0) return;
  const bool all_packs = rows_hold_packs(size.cols, x, weight, bias, y);
  launch_rows(stream, size, all_packs, [&]<int lanes, bool packs>(const Launch& shape) {
    launch(normalize<T, lanes, packs>, shape, size, float(epsilon), x, weight, bias, y, mean, rstd);
  });
}

template <class T>
void layer_norm_backward(Stream stream, Rows size, const T* x, const T* weight, const Accum<T>* mean,
                         const Accum<T>* rstd, const T* dy, T* dx, T* dweight, T* dbias) {
  if (size.cols == 0) return;
  const bool all_packs = rows_hold_packs(size.cols, x, weight, dy, dx);
  if (size.rows > 0)
    launch_rows(stream, size, all_packs, [&]<int lanes, bool packs>(const Launch& shape) {
      launch(gradient<T, lanes, packs>, shape, size, x, weight, mean, rstd, dy, dx);
    });
  const Reduction over_all_rows{1, size.rows, size.cols};
  sum_columns(stream, over_all_rows, WeightGradient<T>{x, dy, mean, rstd, size.cols}, dweight);
  sum_columns(stream, over_all_rows, Elements<T>{dy, size.rows, size.cols}, dbias);
}

CAIRN_GPU_TYPES(layer_norm_forward)
CAIRN_GPU_TYPES(layer_norm_backward)

}  // namespace cairn::gpu
