// Layer normalization over rows (Ba, Kiros, Hinton 2016), and its gradient.
//
//   y = z weight + bias,  z = (x - mean) rstd,  rstd = 1 / sqrt(variance + epsilon)
//   dx = rstd (h - mean(h) - z mean(h z)) with h = dy weight,  dweight = sum_r dy z,  dbias = sum_r dy
//
// x, y, dy, dx [rows, cols], weight, bias and their gradients [cols] in float32 or bfloat16; mean, rstd [rows] and all
// arithmetic in float32. The variance is that of the differences from the mean, a second pass over the row.
//
// Launch. y and dx: rows of up to 1024 elements take a warp each, four a block, and stay in registers; longer ones take
// a block of 256 threads each and are read again. dweight and dbias: a block takes 32 columns of 512 rows, a lane a
// column, a warp every 8th row; a second kernel of the same shape adds up these pieces. All sums have one order.
// Traffic of n = rows * cols elements of e bytes: forward 2 e n for short rows, the floor, and 4 e n for longer ones,
// mostly from the cache; backward 5 e n, or 7 e n, where the floor is 3 e n: x and dy are read once more for the
// columns' sums. Bound by memory.
//
// cost normalize_short: 2*e*n + 8*R bytes, 8*n FLOPs
// cost normalize_long: 3*e*n + 8*R bytes, 8*n FLOPs
// cost gradient_short: 3*e*n + 8*R bytes, 10*n FLOPs
// cost gradient_long: 5*e*n + 8*R bytes, 10*n FLOPs
// cost column_gradients: 2*e*n + 8*R bytes, 6*n FLOPs
// cost add_pieces: 8*F bytes, 2*F FLOPs
#include "core/kernels/layer_norm.h"

#include <cmath>

#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int column_warps = 8;
constexpr int64_t column_piece = 512;

template <class T, int items>
__global__ void __launch_bounds__(32 * rows_per_block)
    normalize_short(Rows size, float epsilon, const T* x, const T* weight, const T* bias, T* y, float* mean,
                    float* rstd) {
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const int64_t start = row * size.cols;
    float keep[items] = {}, sum = 0, squares = 0;
    each_kept<items>(size.cols, [&](int i, int64_t c) { sum += keep[i] = float(x[start + c]); });
    const float m = warp_reduce(sum, Sum{}) / float(size.cols);
    each_kept<items>(size.cols, [&](int i, int64_t) {
      keep[i] -= m;
      squares += keep[i] * keep[i];
    });
    const float s = 1 / sqrtf(warp_reduce(squares, Sum{}) / float(size.cols) + epsilon);
    each_kept<items>(size.cols,
                     [&](int i, int64_t c) { y[start + c] = T(keep[i] * s * float(weight[c]) + float(bias[c])); });
    if (threadIdx.x % 32 == 0) mean[row] = m, rstd[row] = s;
  }
}

template <class T>
__global__ void __launch_bounds__(threads_per_row) normalize_long(Rows size, float epsilon, const T* x, const T* weight,
                                                                  const T* bias, T* y, float* mean, float* rstd) {
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T* from = x + row * size.cols;
    float sum = 0, squares = 0;
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row) sum += float(from[c]);
    const float m = block_reduce(sum, 0.0f, Sum{}) / float(size.cols);
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row)
      squares += (float(from[c]) - m) * (float(from[c]) - m);
    const float s = 1 / sqrtf(block_reduce(squares, 0.0f, Sum{}) / float(size.cols) + epsilon);
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row)
      y[row * size.cols + c] = T((float(from[c]) - m) * s * float(weight[c]) + float(bias[c]));
    if (threadIdx.x == 0) mean[row] = m, rstd[row] = s;
  }
}

template <class T, int items>
__global__ void __launch_bounds__(32 * rows_per_block)
    gradient_short(Rows size, const T* x, const T* weight, const float* mean, const float* rstd, const T* dy, T* dx) {
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const int64_t start = row * size.cols;
    const float m = mean[row], s = rstd[row];
    float h[items] = {}, z[items] = {}, sum_h = 0, sum_hz = 0;
    each_kept<items>(size.cols, [&](int i, int64_t c) {
      h[i] = float(dy[start + c]) * float(weight[c]);
      z[i] = (float(x[start + c]) - m) * s;
      sum_h += h[i];
      sum_hz += h[i] * z[i];
    });
    const float mean_h = warp_reduce(sum_h, Sum{}) / float(size.cols);
    const float mean_hz = warp_reduce(sum_hz, Sum{}) / float(size.cols);
    each_kept<items>(size.cols, [&](int i, int64_t c) { dx[start + c] = T(s * (h[i] - mean_h - z[i] * mean_hz)); });
  }
}

template <class T>
__global__ void __launch_bounds__(threads_per_row)
    gradient_long(Rows size, const T* x, const T* weight, const float* mean, const float* rstd, const T* dy, T* dx) {
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const int64_t start = row * size.cols;
    const float m = mean[row], s = rstd[row];
    const auto h = [&](int64_t c) { return float(dy[start + c]) * float(weight[c]); };
    const auto z = [&](int64_t c) { return (float(x[start + c]) - m) * s; };
    float sum_h = 0, sum_hz = 0;
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row) {
      sum_h += h(c);
      sum_hz += h(c) * z(c);
    }
    const float mean_h = block_reduce(sum_h, 0.0f, Sum{}) / float(size.cols);
    const float mean_hz = block_reduce(sum_hz, 0.0f, Sum{}) / float(size.cols);
    for (int64_t c = threadIdx.x; c < size.cols; c += threads_per_row)
      dx[start + c] = T(s * (h(c) - mean_h - z(c) * mean_hz));
  }
}

// ---- dweight and dbias

// Adds up what the warps of a block have for the columns of their lanes, in the order of the warps, in warp 0.
__device__ void add_warps(float& a, float& b) {
  __shared__ float of_warp[2][column_warps][32];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  of_warp[0][warp][lane] = a;
  of_warp[1][warp][lane] = b;
  __syncthreads();
  for (int w = 1; warp == 0 && w < column_warps; ++w) {
    a += of_warp[0][w][lane];
    b += of_warp[1][w][lane];
  }
  __syncthreads();  // of_warp is written again
}

// partial [pieces, 2, cols]: the two sums over the rows of each piece.
template <class T>
__global__ void __launch_bounds__(32 * column_warps)
    column_gradients(Rows size, const T* x, const float* mean, const float* rstd, const T* dy, float* partial) {
  const int64_t tiles = ceil_div(size.cols, 32), tasks = tiles * ceil_div(size.rows, column_piece);
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t column = task % tiles * 32 + threadIdx.x % 32, piece = task / tiles;
    const int64_t end = min(size.rows, (piece + 1) * column_piece);
    float of_weight = 0, of_bias = 0;
    if (column < size.cols)
      for (int64_t row = piece * column_piece + threadIdx.x / 32; row < end; row += column_warps) {
        const float g = float(dy[row * size.cols + column]);
        of_weight += g * (float(x[row * size.cols + column]) - mean[row]) * rstd[row];
        of_bias += g;
      }
    add_warps(of_weight, of_bias);
    if (threadIdx.x / 32 == 0 && column < size.cols) {
      partial[2 * piece * size.cols + column] = of_weight;
      partial[(2 * piece + 1) * size.cols + column] = of_bias;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(32 * column_warps)
    add_pieces(int64_t count, int64_t cols, const float* partial, T* dweight, T* dbias) {
  for (int64_t tile = blockIdx.x; tile < ceil_div(cols, 32); tile += gridDim.x) {
    const int64_t column = tile * 32 + threadIdx.x % 32;
    float of_weight = 0, of_bias = 0;
    if (column < cols)
      for (int64_t piece = threadIdx.x / 32; piece < count; piece += column_warps) {
        of_weight += partial[2 * piece * cols + column];
        of_bias += partial[(2 * piece + 1) * cols + column];
      }
    add_warps(of_weight, of_bias);
    if (threadIdx.x / 32 == 0 && column < cols) dweight[column] = T(of_weight), dbias[column] = T(of_bias);
  }
}

// Calls f<items>() with the fewest items a lane that hold a row of a warp. False: the row is too long.
template <int items = 1, class F>
bool with_items(int64_t cols, F&& f) {
  if (cols <= 32 * items) {
    f.template operator()<items>();
    return true;
  }
  if constexpr (items < 32)
    return with_items<2 * items>(cols, f);
  else
    return false;
}

}  // namespace

template <class T>
void layer_norm_forward(Stream stream, Rows size, double epsilon, const T* x, const T* weight, const T* bias, T* y,
                        Accum<T>* mean, Accum<T>* rstd) {
  if (size.rows == 0) return;
  const Launch short_rows{blocks(ceil_div(size.rows, rows_per_block)), 32 * rows_per_block, 0, stream};
  if (!with_items(size.cols, [&]<int items>() {
        launch(normalize_short<T, items>, short_rows, size, float(epsilon), x, weight, bias, y, mean, rstd);
      }))
    launch(normalize_long<T>, {blocks(size.rows), threads_per_row, 0, stream}, size, float(epsilon), x, weight, bias, y,
           mean, rstd);
}

template <class T>
void layer_norm_backward(Stream stream, Rows size, const T* x, const T* weight, const Accum<T>* mean,
                         const Accum<T>* rstd, const T* dy, T* dx, T* dweight, T* dbias) {
  if (size.cols == 0) return;
  const int64_t tiles = ceil_div(size.cols, 32), count = ceil_div(size.rows, column_piece);
  Workspace workspace(Device::cuda);
  float* const partial = workspace.take<float>(2 * count * size.cols);
  if (size.rows > 0) {
    const Launch short_rows{blocks(ceil_div(size.rows, rows_per_block)), 32 * rows_per_block, 0, stream};
    if (!with_items(size.cols, [&]<int items>() {
          launch(gradient_short<T, items>, short_rows, size, x, weight, mean, rstd, dy, dx);
        }))
      launch(gradient_long<T>, {blocks(size.rows), threads_per_row, 0, stream}, size, x, weight, mean, rstd, dy, dx);
    launch(column_gradients<T>, {blocks(tiles * count), 32 * column_warps, 0, stream}, size, x, mean, rstd, dy,
           partial);
  }
  launch(add_pieces<T>, {blocks(tiles), 32 * column_warps, 0, stream}, count, size.cols, partial, dweight, dbias);
}

#define INSTANTIATE(T)                                                                                                \
  template void layer_norm_forward(Stream, Rows, double, const T*, const T*, const T*, T*, Accum<T>*, Accum<T>*);     \
  template void layer_norm_backward(Stream, Rows, const T*, const T*, const Accum<T>*, const Accum<T>*, const T*, T*, \
                                    T*, T*);
INSTANTIATE(float)
INSTANTIATE(bfloat16)

}  // namespace cairn::gpu
