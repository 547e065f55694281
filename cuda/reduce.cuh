#pragma once
// Sums over the middle axis of [outer, n, inner], of elements that a function computes. They are in float32, in an
// order that depends on the shape alone.
#include "core/kernels/reduce.h"
#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {

inline constexpr int column_warps = 8;
inline constexpr int64_t column_chunk = 512;  // rows

// The elements of a tensor [outer, n, inner].
template <class T>
struct Elements {
  const T* x;
  int64_t n, inner;

  __device__ float operator()(int64_t outer, int64_t row, int64_t column) const {
    return float(x[(outer * n + row) * inner + column]);
  }
};

// Sums over chunks of 512 rows: y [outer, chunks, inner]. A block takes 32 columns of a chunk. A lane takes a column,
// each of 8 warps every 8th row; their sums are added in shared memory.
template <class Value, class To>
__global__ void __launch_bounds__(32 * column_warps) sum_chunks_of_columns(Reduction size, Value value, To* y) {
  __shared__ float of_warp[column_warps][32];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int64_t tiles = ceil_div(size.inner, 32), chunks = count_chunks(size.n, column_chunk);
  for (int64_t task = blockIdx.x; task < size.outer * chunks * tiles; task += gridDim.x) {
    const int64_t column = task % tiles * 32 + lane, chunk = task / tiles;  // of all outer * chunks
    const int64_t begin = chunk % chunks * column_chunk, end = min(size.n, begin + column_chunk);
    float result = 0;
    if (column < size.inner)
      for (int64_t row = begin + warp; row < end; row += column_warps) result += value(chunk / chunks, row, column);
    of_warp[warp][lane] = result;
    __syncthreads();
    if (warp == 0 && column < size.inner) {
      for (int w = 1; w < column_warps; ++w) result += of_warp[w][lane];
      y[chunk * size.inner + column] = To(result);
    }
    __syncthreads();  // before of_warp is written again
  }
}

// y [outer, inner] = the sum over the rows of value(outer, row, column). Passes follow until there is one chunk.
template <class Value, class To>
void sum_columns(Stream stream, const Reduction& size, Value value, To* y) {
  const auto& [outer, n, inner] = size;
  const int64_t chunks = count_chunks(n, column_chunk);
  const Launch shape{blocks(outer * chunks * ceil_div(inner, 32)), 32 * column_warps, 0, stream};
  if (chunks == 1) return launch(sum_chunks_of_columns<Value, To>, shape, size, value, y);
  Workspace workspace(Device::cuda);
  float* const partial = workspace.take<float>(outer * chunks * inner);
  launch(sum_chunks_of_columns<Value, float>, shape, size, value, partial);
  sum_columns(stream, {outer, chunks, inner}, Elements<float>{partial, chunks, inner}, y);
}

}  // namespace cairn::gpu
