// Softmax over rows, and its gradient.
//
//   y_rc = exp(x_rc - max_r) / sum_c exp(x_rc - max_r),   dx_rc = y_rc (dy_rc - sum_c y_rc dy_rc)
//
// A row of minus infinities gives zeros: exp(-inf - max) counts as 0 whatever max is, so the sum is 0 there and nowhere
// else. NaN and plus infinity reach the sum, and with it the whole row. x, y, dy, dx: [rows, cols], float32 or
// bfloat16; all arithmetic is in float32.
//
// Launch. Rows of up to 1024 elements: a warp a row, four rows a block; a lane keeps elements lane, lane + 32, ... in
// registers. Longer ones: a block of 256 threads a row, which reads it twice.
// Traffic of n = rows * cols elements of e bytes: 2 e n forward and 3 e n backward for short rows, which is the floor;
// 3 e n and 5 e n for longer ones, the second reading mostly from the cache. Bound by memory.
//
// cost softmax_short: 2*e*n bytes, 5*n FLOPs
// cost softmax_long: 3*e*n bytes, 6*n FLOPs
// cost softmax_gradient_short: 3*e*n bytes, 4*n FLOPs
// cost softmax_gradient_long: 5*e*n bytes, 4*n FLOPs
#include "core/kernels/softmax.h"

#include <cmath>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

__device__ float weight(float x, float maximum) { return x == -INFINITY ? 0.0f : expf(x - maximum); }

template <class T, int items>
__global__ void __launch_bounds__(32 * rows_per_block) softmax_short(Rows size, const T* x, T* y) {
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const T* from = x + row * size.cols;
    T* to = y + row * size.cols;

    float keep[items] = {}, maximum = -INFINITY, sum = 0;
    each_kept<items>(size.cols, [&](int i, int64_t c) {
      keep[i] = float(from[c]);
      maximum = fmaxf(maximum, keep[i]);
    });
    maximum = warp_reduce(maximum, Max{});
    each_kept<items>(size.cols, [&](int i, int64_t) {
      keep[i] = weight(keep[i], maximum);
      sum += keep[i];
    });
    sum = warp_reduce(sum, Sum{});
    const float scale = sum == 0 ? 0.0f : 1 / sum;
    each_kept<items>(size.cols, [&](int i, int64_t c) { to[c] = T(keep[i] * scale); });
  }
}

template <class T>
__global__ void __launch_bounds__(threads_per_row) softmax_long(Rows size, const T* x, T* y) {
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T* from = x + row * size.cols;
    T* to = y + row * size.cols;

    // The sum of what this thread has seen, relative to the maximum of what it has seen (Milakov & Gimelshein 2018).
    float maximum = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row) {
      const float value = float(from[c]);
      if (value > maximum) {
        sum = sum * expf(maximum - value) + 1;
        maximum = value;
      } else {
        sum += weight(value, maximum);
      }
    }
    const float row_maximum = block_reduce(maximum, -INFINITY, Max{});
    if (sum != 0) sum *= expf(maximum - row_maximum);
    sum = block_reduce(sum, 0.0f, Sum{});
    const float scale = sum == 0 ? 0.0f : 1 / sum;
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row)
      to[c] = T(weight(float(from[c]), row_maximum) * scale);
  }
}

template <class T, int items>
__global__ void __launch_bounds__(32 * rows_per_block)
    softmax_gradient_short(Rows size, const T* y, const T* dy, T* dx) {
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const int64_t start = row * size.cols;
    float kept_y[items] = {}, kept_dy[items] = {}, sum = 0;
    each_kept<items>(size.cols, [&](int i, int64_t c) {
      kept_y[i] = float(y[start + c]);
      kept_dy[i] = float(dy[start + c]);
      sum += kept_y[i] * kept_dy[i];
    });
    sum = warp_reduce(sum, Sum{});
    each_kept<items>(size.cols, [&](int i, int64_t c) { dx[start + c] = T(kept_y[i] * (kept_dy[i] - sum)); });
  }
}

template <class T>
__global__ void __launch_bounds__(threads_per_row) softmax_gradient_long(Rows size, const T* y, const T* dy, T* dx) {
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const int64_t start = row * size.cols;
    float sum = 0;
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row)
      sum += float(y[start + c]) * float(dy[start + c]);
    sum = block_reduce(sum, 0.0f, Sum{});
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row)
      dx[start + c] = T(float(y[start + c]) * (float(dy[start + c]) - sum));
  }
}

// The kernel for the shortest rows that holds a row: `items` elements a lane.
template <class T, int items = 1>
void forward(Stream stream, Rows size, const T* x, T* y) {
  if (size.cols <= 32 * items)
    launch(softmax_short<T, items>, {blocks(ceil_div(size.rows, rows_per_block)), 32 * rows_per_block, 0, stream}, size,
           x, y);
  else if constexpr (items < 32)
    forward<T, 2 * items>(stream, size, x, y);
  else
    launch(softmax_long<T>, {blocks(size.rows), threads_per_row, 0, stream}, size, x, y);
}

template <class T, int items = 1>
void backward(Stream stream, Rows size, const T* y, const T* dy, T* dx) {
  if (size.cols <= 32 * items)
    launch(softmax_gradient_short<T, items>,
           {blocks(ceil_div(size.rows, rows_per_block)), 32 * rows_per_block, 0, stream}, size, y, dy, dx);
  else if constexpr (items < 32)
    backward<T, 2 * items>(stream, size, y, dy, dx);
  else
    launch(softmax_gradient_long<T>, {blocks(size.rows), threads_per_row, 0, stream}, size, y, dy, dx);
}

}  // namespace

template <class T>
void softmax_forward(Stream stream, Rows size, const T* x, T* y) {
  if (size.rows > 0 && size.cols > 0) forward(stream, size, x, y);
}

template <class T>
void softmax_backward(Stream stream, Rows size, const T* y, const T* dy, T* dx) {
  if (size.rows > 0 && size.cols > 0) backward(stream, size, y, dy, dx);
}

template void softmax_forward(Stream, Rows, const float*, float*);
template void softmax_forward(Stream, Rows, const bfloat16*, bfloat16*);
template void softmax_backward(Stream, Rows, const float*, const float*, float*);
template void softmax_backward(Stream, Rows, const bfloat16*, const bfloat16*, bfloat16*);

}  // namespace cairn::gpu
