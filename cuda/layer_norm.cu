// Layer normalization over rows (Ba, Kiros, Hinton 2016), and its gradient.
//
//   y = z weight + bias,  z = (x - mean) rstd,  rstd = 1 / sqrt(variance + epsilon)
//   dx = rstd (h - mean(h) - z mean(h z)) with h = dy weight,  dweight = sum_r dy z,  dbias = sum_r dy
//
// x, y, dy, dx [rows, cols], weight, bias and their gradients [cols] in float32 or bfloat16; mean, rstd [rows] and all
// arithmetic in float32. The variance is computed from differences from the mean, in a second pass over the row.
//
// Launch. y and dx: a warp takes a row of up to 1024 elements, four rows a block. A block of 256 threads takes a longer
// row. They go over it three times for y, twice for dx. dweight and dbias: a block takes 32 columns of a row block, 512
// rows; a second kernel adds up the row blocks. Elements move 16 bytes at a time, or one by one where rows do not start
// at multiples of 16 bytes; the order of sums is the same.
// Traffic of n = rows * cols elements of e bytes: forward 2 e n, the floor; backward 5 e n. The floor of backward is 3
// e n: x and dy are read again for the sums of columns. Later readings of a row do not count: they come from the L1
// cache, where a warp's row has at most 4 KB an operand, or from the L2 cache. Bound by memory.
#include "core/kernels/layer_norm.h"

#include <cmath>

#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int column_warps = 8;
constexpr int64_t block_rows = 512;

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

// ---- dweight and dbias

// Adds up the sums of a block's warps for 32 columns, in the order of the warps. In warp 0, a and b become the results
// of column threadIdx.x. The first lanes of each warp contribute `n` columns each.
template <int n>
__device__ void add_warps(const float (&of_a)[n], const float (&of_b)[n], float& a, float& b) {
  __shared__ float of_warp[2][column_warps][32];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
#pragma unroll
  for (int k = 0; k < n; ++k)
    if (lane < 32 / n) {
      of_warp[0][warp][lane * n + k] = of_a[k];
      of_warp[1][warp][lane * n + k] = of_b[k];
    }
  __syncthreads();
  a = b = 0;
  for (int w = 0; warp == 0 && w < column_warps; ++w) {
    a += of_warp[0][w][lane];
    b += of_warp[1][w][lane];
  }
  __syncthreads();  // before of_warp is written again
}

// partial [row blocks, 2, cols]: the two sums over each row block. A lane takes one of four chunks of the 32 columns,
// and every 64th row.
template <class T, bool packs>
__global__ void __launch_bounds__(32 * column_warps)
    column_gradients(Rows size, const T* x, const float* mean, const float* rstd, const T* dy, float* partial) {
  constexpr int lanes_a_row = 32 / chunk_size, rows_at_once = column_warps * chunk_size;
  const int64_t tiles = ceil_div(size.cols, 32), tasks = tiles * ceil_div(size.rows, block_rows);
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t row_block = task / tiles, first_chunk = task % tiles * lanes_a_row;
    const int64_t chunk = first_chunk + threadIdx.x % lanes_a_row, end = min(size.rows, (row_block + 1) * block_rows);
    float of_weight[chunk_size] = {}, of_bias[chunk_size] = {};
    if (chunk * chunk_size < size.cols)
#pragma unroll 4
      for (int64_t row = row_block * block_rows + threadIdx.x / lanes_a_row; row < end; row += rows_at_once) {
        const auto g = load_chunk<packs>(dy + row * size.cols, size.cols, chunk);
        const auto value = load_chunk<packs>(x + row * size.cols, size.cols, chunk);
        const float m = mean[row], s = rstd[row];
#pragma unroll
        for (int k = 0; k < chunk_size; ++k) {
          of_weight[k] = fmaf(g.element[k] * (value.element[k] - m), s, of_weight[k]);
          of_bias[k] += g.element[k];
        }
      }
#pragma unroll
    for (int k = 0; k < chunk_size; ++k)
      for (int distance = 16; distance >= lanes_a_row; distance /= 2) {
        of_weight[k] += __shfl_xor_sync(full_warp, of_weight[k], distance);
        of_bias[k] += __shfl_xor_sync(full_warp, of_bias[k], distance);
      }
    float sum_weight, sum_bias;
    add_warps(of_weight, of_bias, sum_weight, sum_bias);
    const int64_t column = first_chunk * chunk_size + threadIdx.x;
    if (threadIdx.x < 32 && column < size.cols) {
      partial[2 * row_block * size.cols + column] = sum_weight;
      partial[(2 * row_block + 1) * size.cols + column] = sum_bias;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(32 * column_warps)
    add_row_blocks(int64_t count, int64_t cols, const float* partial, T* dweight, T* dbias) {
  for (int64_t tile = blockIdx.x; tile < ceil_div(cols, 32); tile += gridDim.x) {
    const int64_t column = tile * 32 + threadIdx.x % 32;
    float of_weight[1] = {}, of_bias[1] = {};
    if (column < cols)
#pragma unroll 2
      for (int64_t row_block = threadIdx.x / 32; row_block < count; row_block += column_warps) {
        of_weight[0] += partial[2 * row_block * cols + column];
        of_bias[0] += partial[(2 * row_block + 1) * cols + column];
      }
    float sum_weight, sum_bias;
    add_warps(of_weight, of_bias, sum_weight, sum_bias);
    if (threadIdx.x < 32 && column < cols) {
      dweight[column] = T(sum_weight);
      dbias[column] = T(sum_bias);
    }
  }
}

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
  const int64_t tiles = ceil_div(size.cols, 32), count = ceil_div(size.rows, block_rows);
  Workspace workspace(Device::cuda);
  float* const partial = workspace.take<float>(2 * count * size.cols);
  const bool all_packs = rows_hold_packs(size.cols, x, weight, dy, dx);
  if (size.rows > 0)
    launch_rows(stream, size, all_packs, [&]<int lanes, bool packs>(const Launch& shape) {
      launch(gradient<T, lanes, packs>, shape, size, x, weight, mean, rstd, dy, dx);
      launch(column_gradients<T, packs>, {blocks(tiles * count), 32 * column_warps, 0, stream}, size, x, mean, rstd, dy,
             partial);
    });
  launch(add_row_blocks<T>, {blocks(tiles), 32 * column_warps, 0, stream}, count, size.cols, partial, dweight, dbias);
}

CAIRN_GPU_TYPES(layer_norm_forward)
CAIRN_GPU_TYPES(layer_norm_backward)

}  // namespace cairn::gpu
