#pragma once
// Sums over the middle axis of [outer, n, inner], of elements that a function computes. They are in float32, in an
// order that depends on the shape alone.
#include "core/kernels/reduce.h"
#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {

template <class T>
void sum_columns(Stream stream, const Reduction& size, const T* x, float* y);

inline constexpr int column_warps = 8;
inline constexpr int column_lanes = 16;       // of a warp, side by side; it takes two rows at a time
inline constexpr int64_t column_chunk = 512;  // rows

// The elements of a tensor [outer, n, inner], eight columns at a time.
template <class T, bool packs>
struct Elements {
  const T* x;
  int64_t n, inner;

  __device__ Chunk operator()(int64_t outer, int64_t row, int64_t c) const {
    return load_chunk<packs>(x + (outer * n + row) * inner, inner, c);
  }
};

// Sums over chunks of 512 rows: y [outer, chunks, inner]. A block takes 128 columns of a chunk. A thread takes eight
// columns of every 16th row. The sums of the two rows of a warp, and then of the warps, are added.
template <class Value>
__global__ void __launch_bounds__(32 * column_warps) sum_chunks_of_columns(Reduction size, Value value, float* y) {
  constexpr int width = column_lanes * chunk_size, rows = 32 / column_lanes;
  __shared__ float of_warp[column_warps][width];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), across = lane % column_lanes;
  const int64_t tiles = ceil_div(size.inner, width), chunks = count_chunks(size.n, column_chunk);
  for (int64_t task = blockIdx.x; task < size.outer * chunks * tiles; task += gridDim.x) {
    const int64_t column = task % tiles * width, chunk = task / tiles;  // of all outer * chunks
    const int64_t begin = chunk % chunks * column_chunk, end = min(size.n, begin + column_chunk);
    const int64_t c = column / chunk_size + across;
    Chunk sums{};
    if (c * chunk_size < size.inner)
#pragma unroll 8
      for (int64_t row = begin + warp * rows + lane / column_lanes; row < end; row += column_warps * rows) {
        const Chunk added = value(chunk / chunks, row, c);
#pragma unroll
        for (int k = 0; k < chunk_size; ++k) sums.element[k] += added.element[k];
      }
#pragma unroll
    for (int k = 0; k < chunk_size; ++k) {
      float& sum = sums.element[k];
      for (int distance = column_lanes; distance < 32; distance *= 2) sum += __shfl_xor_sync(full_warp, sum, distance);
      if (lane < column_lanes) of_warp[warp][across * chunk_size + k] = sum;
    }
    __syncthreads();
    if (const int64_t mine = column + threadIdx.x; threadIdx.x < width && mine < size.inner) {
      float sum = 0;
      for (const auto& of_columns : of_warp) sum += of_columns[threadIdx.x];
      y[chunk * size.inner + mine] = sum;
    }
    __syncthreads();  // before of_warp is written again
  }
}

// y [outer, inner] = the sum over the rows of value(outer, row, c), chunks of eight columns. Passes follow until there
// is one chunk of rows.
template <class Value>
void sum_columns_of(Stream stream, const Reduction& size, Value value, float* y) {
  const auto& [outer, n, inner] = size;
  const int64_t chunks = count_chunks(n, column_chunk);
  const int64_t tiles = ceil_div(inner, column_lanes * chunk_size);
  Workspace workspace(Device::cuda);
  float* const sums = chunks == 1 ? y : workspace.take<float>(outer * chunks * inner);
  launch(sum_chunks_of_columns<Value>, {blocks(outer * chunks * tiles), 32 * column_warps, 0, stream}, size, value,
         sums);
  if (chunks > 1) sum_columns<float>(stream, {outer, chunks, inner}, sums, y);
}
// The same of x [outer, n, inner].
template <class T>
void sum_columns(Stream stream, const Reduction& size, const T* x, float* y) {
  if (rows_hold_packs(size.inner, x))
    sum_columns_of(stream, size, Elements<T, true>{x, size.n, size.inner}, y);
  else
    sum_columns_of(stream, size, Elements<T, false>{x, size.n, size.inner}, y);
}

}  // namespace cairn::gpu
