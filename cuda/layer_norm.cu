// Layer normalization over rows (Ba, Kiros, Hinton 2016), and its gradient.
//
//   y = z weight + bias,  z = (x - mean) rstd,  rstd = 1 / sqrt(variance + epsilon)
//   dx = rstd (h - mean(h) - z mean(h z)) with h = dy weight,  dweight = sum_r dy z,  dbias = sum_r dy
//
// x, y, dy, dx [rows, cols], weight and bias [cols] in float32 or bfloat16; the gradients of weight and bias, mean,
// rstd [rows] and all arithmetic in float32. The variance is computed from differences from the mean, in a second pass
// over the row.
//
// Launch. y and dx: a warp takes a row of up to 1024 elements, four rows a block, and keeps it in registers (for dx,
// those of x and dy). A block of 256 threads takes a longer row, which it reads three times for y, twice for dx.
// Elements move 16 bytes at a time, or one by one where 8 does not divide the columns; the order of sums is the same.
// For dx the warp also keeps, over all its rows, the weights and its sums for dweight and dbias: 16 columns a lane if a
// row has at most 512 elements, else 32. The sums of all warps, up to 2048, are then added (reduce.cuh). For longer
// rows, two more kernels add up dweight and dbias. Traffic of n = rows * cols elements of e bytes: forward 2 e n and
// backward 3 e n, the floor, and the warps' sums; backward of longer rows 6 e n. Later readings of a long row do not
// count: they come from the L2 cache. Bound by memory.
#include "core/kernels/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "cuda/common.cuh"
#include "cuda/reduce.cuh"

namespace cairn::gpu {
namespace {

template <class T, int threads, bool packs>
__global__ void __launch_bounds__(threads_a_block<threads>)
    normalize(Rows size, float epsilon, const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd) {
  const int64_t cols = size.cols;
  each_row<threads>(size.rows, [&](int64_t row) {
    RowChunks<T, threads, packs> own(x + row * cols, cols);
    float sum = 0, squares = 0;
    own.each([&](const Chunk& chunk, int64_t) {
      for (const float value : chunk.element) sum += value;
    });
    const float m = row_reduce<threads>(sum, 0.0f, Sum{}) / float(cols);
    own.each([&](const Chunk& chunk, int64_t c) {
#pragma unroll
      for (int k = 0; k < chunk_size; ++k)
        if (const float z = chunk.element[k] - m; packs || c * chunk_size + k < cols) squares = fmaf(z, z, squares);
    });
    const float s = 1 / sqrtf(row_reduce<threads>(squares, 0.0f, Sum{}) / float(cols) + epsilon);
    own.each([&](Chunk& chunk, int64_t c) {
      const auto w = load_chunk<packs>(weight, cols, c), b = load_chunk<packs>(bias, cols, c);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k)
        chunk.element[k] = fmaf((chunk.element[k] - m) * s, w.element[k], b.element[k]);
      store_chunk<packs>(chunk, y + row * cols, cols, c);
    });
    if (row_thread<threads>() == 0) {
      mean[row] = m;
      rstd[row] = s;
    }
  });
}

// With one warp a row also the sums for dweight and dbias of each warp: sums [2, warps, cols]. A lane has at most
// `kept` chunks; 0 where a block takes a row.
template <class T, int threads, bool packs, int kept>
__global__ void __launch_bounds__(threads_a_block<threads>)
    gradient(Rows size, const T* x, const T* weight, const float* mean, const float* rstd, const T* dy, T* dx,
             float* sums) {
  Chunk dweight[kept + 1] = {}, dbias[kept + 1] = {};
  const int64_t cols = size.cols;
  RowChunks<T, threads, packs, kept> weights(weight, cols);
  each_row<threads>(size.rows, [&](int64_t row) {
    RowChunks<T, threads, packs, kept> own_x(x + row * cols, cols), own_dy(dy + row * cols, cols);
    const float m = mean[row], s = rstd[row];
    float sum_h = 0, sum_hz = 0;
    each_chunk<threads, kept>(cols, [&](int64_t c, int i) {
      const Chunk &x_now = own_x.at(c, i), &g = own_dy.at(c, i), &w = weights.at(c, i);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k) {
        const float z = (x_now.element[k] - m) * s;
        sum_h = fmaf(g.element[k], w.element[k], sum_h);
        sum_hz = fmaf(g.element[k] * w.element[k], z, sum_hz);
      }
    });
    const float mean_h = row_reduce<threads>(sum_h, 0.0f, Sum{}) / float(cols);
    const float mean_hz = row_reduce<threads>(sum_hz, 0.0f, Sum{}) / float(cols);
    each_chunk<threads, kept>(cols, [&](int64_t c, int i) {
      const Chunk &x_now = own_x.at(c, i), &w = weights.at(c, i);
      Chunk g = own_dy.at(c, i);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k) {
        const float z = (x_now.element[k] - m) * s;
        dweight[i].element[k] = fmaf(g.element[k], z, dweight[i].element[k]);
        dbias[i].element[k] += g.element[k];
        g.element[k] = s * fmaf(-z, mean_hz, fmaf(g.element[k], w.element[k], -mean_h));
      }
      store_chunk<packs>(g, dx + row * cols, cols, c);
    });
  });
  const int64_t warps = int64_t(gridDim.x) * rows_per_block,
                warp = int64_t(blockIdx.x) * rows_per_block + threadIdx.x / 32;
  if constexpr (kept > 0)
    each_chunk<threads, kept>(cols, [&](int64_t c, int i) {
      store_chunk<packs>(dweight[i], sums + warp * cols, cols, c);
      store_chunk<packs>(dbias[i], sums + (warps + warp) * cols, cols, c);
    });
}

// dy z of a row. The sum over rows is dweight.
template <class T, bool packs>
struct WeightGradient {
  const T *x, *dy;
  const float *mean, *rstd;
  int64_t cols;

  __device__ Chunk operator()(int64_t, int64_t row, int64_t c) const {
    Chunk result = load_chunk<packs>(dy + row * cols, cols, c);
    const Chunk x_now = load_chunk<packs>(x + row * cols, cols, c);
#pragma unroll
    for (int k = 0; k < chunk_size; ++k) result.element[k] *= (x_now.element[k] - mean[row]) * rstd[row];
    return result;
  }
};

}  // namespace

template <class T>
void layer_norm_forward(Stream stream, Rows size, double epsilon, const T* x, const T* weight, const T* bias, T* y,
                        Accum<T>* mean, Accum<T>* rstd) {
  if (size.rows == 0) return;
  const bool all_packs = rows_hold_packs(size.cols, x, weight, bias, y);
  launch_rows(stream, size, all_packs, [&]<int threads, bool packs>(const Launch& shape) {
    launch(normalize<T, threads, packs>, shape, size, float(epsilon), x, weight, bias, y, mean, rstd);
  });
}

template <class T>
void layer_norm_backward(Stream stream, Rows size, const T* x, const T* weight, const Accum<T>* mean,
                         const Accum<T>* rstd, const T* dy, T* dx, Accum<T>* dweight, Accum<T>* dbias) {
  if (size.cols == 0) return;
  const bool all_packs = rows_hold_packs(size.cols, x, weight, dy, dx);
  launch_rows(stream, size, all_packs, [&]<int threads, bool packs>(Launch shape) {
    constexpr unsigned max_blocks = 512;
    if constexpr (threads == 32) {
      shape.grid.x = std::clamp(shape.grid.x, 1u, max_blocks);
      const int64_t warps = int64_t{shape.grid.x} * rows_per_block;
      Workspace workspace(Device::cuda);
      float* const sums = workspace.take<float>(2 * warps * size.cols);
      launch(size.cols <= short_row / 2 ? gradient<T, 32, packs, max_lane_chunks / 2>
                                        : gradient<T, 32, packs, max_lane_chunks>,
             shape, size, x, weight, mean, rstd, dy, dx, sums);
      sum_columns(stream, {1, warps, size.cols}, sums, dweight);
      sum_columns(stream, {1, warps, size.cols}, sums + warps * size.cols, dbias);
    } else {
      if (size.rows > 0)
        launch(gradient<T, threads, packs, 0>, shape, size, x, weight, mean, rstd, dy, dx,
               static_cast<float*>(nullptr));
      const Reduction over_all_rows{1, size.rows, size.cols};
      sum_columns_of(stream, over_all_rows, WeightGradient<T, packs>{x, dy, mean, rstd, size.cols}, dweight);
      sum_columns(stream, over_all_rows, dy, dbias);
    }
  });
}

CAIRN_GPU_TYPES(layer_norm_forward)
CAIRN_GPU_TYPES(layer_norm_backward)

}  // namespace cairn::gpu
