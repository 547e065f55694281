// Sums over the middle axis of [outer, n, inner], float32 or bfloat16. They are in float32, in an order that depends on
// the shape alone.
//
// Launch. A pass cuts the axis into chunks and sums up each: [outer, n, inner] -> [outer, chunks, inner]. Passes follow
// until there is one chunk. Between passes, results are float32.
//   sum_rows     (inner = 1) a warp takes an axis of up to 1024 elements, a lane every 32nd of them
//   sum_chunks   (inner = 1) a block of 256 threads takes a chunk of up to 16384 elements, a thread every 256th
//   sum_columns  (inner > 1) a block takes 32 columns of a chunk of up to 512 rows. A lane takes a column, each of 8
//                warps every 8th row; their sums are added in shared memory.
// Traffic: each element is read once, the floor; the passes after the first add 1/512 or less. Bound by memory.
#include "core/kernels/reduce.h"

#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int64_t row_chunk = 16384, column_chunk = 512;
constexpr int column_warps = 8;

template <class From, class To>
__global__ void __launch_bounds__(row_threads<32>) sum_rows(int64_t rows, int64_t n, const From* x, To* y) {
  each_row<32>(rows, [&](int64_t row) {
    float result = 0;
    for (int64_t j = row_lane<32>(); j < n; j += 32) result += float(x[row * n + j]);
    result = warp_reduce(result, Sum{});
    if (row_lane<32>() == 0) y[row] = To(result);
  });
}

template <class From, class To>
__global__ void __launch_bounds__(threads_per_row)
    sum_chunks(int64_t rows, int64_t n, int64_t chunks_a_row, const From* x, To* y) {
  for (int64_t task = blockIdx.x; task < rows * chunks_a_row; task += gridDim.x) {
    const From* row = x + task / chunks_a_row * n;
    const int64_t begin = task % chunks_a_row * row_chunk, end = min(n, begin + row_chunk);
    float result = 0;
    for (int64_t j = begin + threadIdx.x; j < end; j += threads_per_row) result += float(row[j]);
    result = block_reduce(result, 0.0f, Sum{});
    if (threadIdx.x == 0) y[task] = To(result);
  }
}

template <class From, class To>
__global__ void __launch_bounds__(32 * column_warps)
    sum_columns(Reduction size, int64_t chunks_a_column, const From* x, To* y) {
  __shared__ float of_warp[column_warps][32];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int64_t tiles = ceil_div(size.inner, 32);
  for (int64_t task = blockIdx.x; task < size.outer * chunks_a_column * tiles; task += gridDim.x) {
    const int64_t column = task % tiles * 32 + lane, chunk = task / tiles;  // of all outer * chunks_a_column
    const int64_t begin = chunk % chunks_a_column * column_chunk, end = min(size.n, begin + column_chunk);
    const From* matrix = x + chunk / chunks_a_column * size.n * size.inner;
    float result = 0;
    if (column < size.inner)
      for (int64_t j = begin + warp; j < end; j += column_warps) result += float(matrix[j * size.inner + column]);
    of_warp[warp][lane] = result;
    __syncthreads();
    if (warp == 0 && column < size.inner) {
      for (int w = 1; w < column_warps; ++w) result += of_warp[w][lane];
      y[chunk * size.inner + column] = To(result);
    }
    __syncthreads();  // before of_warp is written again
  }
}

int64_t count_chunks(const Reduction& size) {
  return size.n == 0 ? 1 : ceil_div(size.n, size.inner == 1 ? row_chunk : column_chunk);
}

template <class From, class To>
void pass(Stream stream, const Reduction& size, const From* x, To* y) {
  const auto& [outer, n, inner] = size;
  const int64_t chunks = count_chunks(size);
  if (inner == 1 && n <= short_row)
    launch(sum_rows<From, To>, over_rows<32>(stream, outer), outer, n, x, y);
  else if (inner == 1)
    launch(sum_chunks<From, To>, {blocks(outer * chunks), threads_per_row, 0, stream}, outer, n, chunks, x, y);
  else
    launch(sum_columns<From, To>, {blocks(outer * chunks * ceil_div(inner, 32)), 32 * column_warps, 0, stream}, size,
           chunks, x, y);
}

template <class From, class To>
void sum_all(Stream stream, const Reduction& size, const From* x, To* y) {
  const int64_t chunks = count_chunks(size);
  if (chunks == 1) return pass(stream, size, x, y);
  Workspace workspace(Device::cuda);
  float* const partial = workspace.take<float>(size.outer * chunks * size.inner);
  pass(stream, size, x, partial);
  sum_all(stream, {size.outer, chunks, size.inner}, static_cast<const float*>(partial), y);
}

}  // namespace

template <class T>
void sum(Stream stream, Reduction size, const T* x, T* y) {
  if (size.outer * size.inner > 0) sum_all(stream, size, x, y);
}

CAIRN_GPU_TYPES(sum)

}  // namespace cairn::gpu
