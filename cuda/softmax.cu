// Softmax over rows, and its gradient.
//
//   y_rc = exp(x_rc - max_r) / sum_c exp(x_rc - max_r),   dx_rc = y_rc (dy_rc - sum_c y_rc dy_rc)
//
// In a row of minus infinities every exponential counts as 0. So its sum is 0, and its result is zeros. No other row
// has a sum of 0. NaN and plus infinity reach the sum, and with it the whole row. x, y, dy, dx: [rows, cols], float32
// or bfloat16; all arithmetic is in float32.
//
// Launch. Rows of up to 1024 elements: a warp a row, four rows a block; a lane keeps chunks lane, lane + 32, ... of 8
// elements in registers. Longer ones: a block of 256 threads a row, which reads it twice. Rows that do not start at
// multiples of 16 bytes are read in the same order, element by element.
// Traffic of n = rows * cols elements of e bytes: 2 e n forward and 3 e n backward for short rows, which is the floor;
// 3 e n and 5 e n for longer ones, the second reading mostly from the cache. Bound by memory.
#include "core/kernels/softmax.h"

#include <cmath>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

template <class T, int chunks, bool packs>
__global__ void __launch_bounds__(32 * rows_per_block) softmax_short(Rows size, const T* x, T* y) {
  const int cols = int(size.cols), all = int(ceil_div(cols, chunk_size));
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const T* from = x + row * cols;
    T* to = y + row * cols;

    Chunk keep[chunks] = {};
    float maximum = -INFINITY, sum = 0;
    each_kept<chunks>(all, [&](int i, int c) {
      keep[i] = load_chunk<packs>(from, cols, c, -INFINITY);
      for (const float value : keep[i].element) maximum = fmaxf(maximum, value);
    });
    const float shift = SumOfExponentials::shift(warp_reduce(maximum, Max{}));
    each_kept<chunks>(all, [&](int i, int) {
      for (float& value : keep[i].element) sum += value = exponential(value - shift);
    });
    sum = warp_reduce(sum, Sum{});
    const float scale = sum == 0 ? 0.0f : 1 / sum;
    each_kept<chunks>(all, [&](int i, int c) {
      for (float& value : keep[i].element) value *= scale;
      store_chunk<packs>(keep[i], to, cols, c);
    });
  }
}

template <class T, bool packs>
__global__ void __launch_bounds__(threads_per_row) softmax_long(Rows size, const T* x, T* y) {
  const int64_t all = ceil_div(size.cols, chunk_size);
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T* from = x + row * size.cols;
    T* to = y + row * size.cols;

    SumOfExponentials mine;
    for (int64_t c = threadIdx.x; c < all; c += threads_per_row)
      mine.add(load_chunk<packs>(from, size.cols, c, -INFINITY));
    mine.raise(block_reduce(mine.maximum, -INFINITY, Max{}));
    const float sum = block_reduce(mine.sum, 0.0f, Sum{});
    const float shift = SumOfExponentials::shift(mine.maximum), scale = sum == 0 ? 0.0f : 1 / sum;
    for (int64_t c = threadIdx.x; c < all; c += threads_per_row) {
      Chunk chunk = load_chunk<packs>(from, size.cols, c);
      for (float& value : chunk.element) value = exponential(value - shift) * scale;
      store_chunk<packs>(chunk, to, size.cols, c);
    }
  }
}

__device__ float add_products(const Chunk& y, const Chunk& dy, float sum) {
#pragma unroll
  for (int k = 0; k < chunk_size; ++k) sum += y.element[k] * dy.element[k];
  return sum;
}
__device__ Chunk gradient(const Chunk& y, const Chunk& dy, float sum) {
  Chunk dx;
#pragma unroll
  for (int k = 0; k < chunk_size; ++k) dx.element[k] = y.element[k] * (dy.element[k] - sum);
  return dx;
}

template <class T, int chunks, bool packs>
__global__ void __launch_bounds__(32 * rows_per_block)
    softmax_gradient_short(Rows size, const T* y, const T* dy, T* dx) {
  const int cols = int(size.cols), all = int(ceil_div(cols, chunk_size));
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const int64_t start = row * cols;
    Chunk kept_y[chunks] = {}, kept_dy[chunks] = {};
    float sum = 0;
    each_kept<chunks>(all, [&](int i, int c) {
      kept_y[i] = load_chunk<packs>(y + start, cols, c);
      kept_dy[i] = load_chunk<packs>(dy + start, cols, c);
      sum = add_products(kept_y[i], kept_dy[i], sum);
    });
    sum = warp_reduce(sum, Sum{});
    each_kept<chunks>(
        all, [&](int i, int c) { store_chunk<packs>(gradient(kept_y[i], kept_dy[i], sum), dx + start, cols, c); });
  }
}

template <class T, bool packs>
__global__ void __launch_bounds__(threads_per_row) softmax_gradient_long(Rows size, const T* y, const T* dy, T* dx) {
  const int64_t all = ceil_div(size.cols, chunk_size);
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const int64_t start = row * size.cols;
    const auto of_y = [&](int64_t c) { return load_chunk<packs>(y + start, size.cols, c); };
    const auto of_dy = [&](int64_t c) { return load_chunk<packs>(dy + start, size.cols, c); };
    float sum = 0;
    for (int64_t c = threadIdx.x; c < all; c += threads_per_row) sum = add_products(of_y(c), of_dy(c), sum);
    sum = block_reduce(sum, 0.0f, Sum{});
    for (int64_t c = threadIdx.x; c < all; c += threads_per_row)
      store_chunk<packs>(gradient(of_y(c), of_dy(c), sum), dx + start, size.cols, c);
  }
}

}  // namespace

template <class T>
void softmax_forward(Stream stream, Rows size, const T* x, T* y) {
  if (size.rows == 0 || size.cols == 0) return;
  choose_rows(size.cols, rows_hold_packs(size.cols, x, y), [&]<int chunks, bool packs>() {
    if constexpr (chunks > 0)
      launch(softmax_short<T, chunks, packs>, rows_by_warps(stream, size.rows), size, x, y);
    else
      launch(softmax_long<T, packs>, rows_by_blocks(stream, size.rows), size, x, y);
  });
}

template <class T>
void softmax_backward(Stream stream, Rows size, const T* y, const T* dy, T* dx) {
  if (size.rows == 0 || size.cols == 0) return;
  choose_rows(size.cols, rows_hold_packs(size.cols, y, dy, dx), [&]<int chunks, bool packs>() {
    if constexpr (chunks > 0)
      launch(softmax_gradient_short<T, chunks, packs>, rows_by_warps(stream, size.rows), size, y, dy, dx);
    else
      launch(softmax_gradient_long<T, packs>, rows_by_blocks(stream, size.rows), size, y, dy, dx);
  });
}

CAIRN_GPU_TYPES(softmax_forward)
CAIRN_GPU_TYPES(softmax_backward)

}  // namespace cairn::gpu
