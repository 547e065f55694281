// Sums over the middle axis of [outer, n, inner], float32 or bfloat16. They are in float32, in an order that depends on
// the shape alone. And argmax: the column of the largest number of each row of x [rows, cols]; the first of equal ones;
// a NaN is the largest.
//
// Launch of sums. A pass cuts the axis into chunks and sums up each: [outer, n, inner] -> [outer, chunks, inner].
// Passes follow until there is one chunk.
//   sum_rows  (inner = 1) a warp takes an axis of up to 1024 elements. A block of 256 threads takes a chunk of up to
//             16384 elements of a longer one. A thread takes every 32nd or 256th element.
//   sum_chunks_of_columns (inner > 1; reduce.cuh) a block takes 128 columns of a chunk of up to 512 rows
// Launch of argmax. A warp takes a row (find_largest); then its lanes compare their largest elements.
// Traffic: each element is read once, the floor; the passes of sums after the first add 1/512 or less. Bound by memory.
#include "core/kernels/reduce.h"

#include "cuda/reduce.cuh"

namespace cairn::gpu {
namespace {

constexpr int64_t row_chunk = 16384;

// y [rows, chunks]
template <class T, int threads>
__global__ void __launch_bounds__(threads_a_block<threads>)
    sum_rows(int64_t rows, int64_t n, int64_t chunks, const T* x, float* y) {
  each_row<threads>(rows * chunks, [&](int64_t task) {
    const int64_t row = task / chunks, begin = task % chunks * row_chunk, end = min(n, begin + row_chunk);
    float result = 0;
    for (int64_t j = begin + row_thread<threads>(); j < end; j += threads) result += float(x[row * n + j]);
    result = row_reduce<threads>(result, 0.0f, Sum{});
    if (row_thread<threads>() == 0) y[task] = result;
  });
}

template <class T>
void sum_all(Stream stream, int64_t rows, int64_t n, const T* x, float* y) {
  const int64_t chunks = count_chunks(n, row_chunk);
  if (n <= short_row) return launch(sum_rows<T, 32>, over_rows<32>(stream, rows), rows, n, chunks, x, y);
  Workspace workspace(Device::cuda);
  float* const sums = chunks == 1 ? y : workspace.take<float>(rows * chunks);
  launch(sum_rows<T, threads_per_row>, over_rows<threads_per_row>(stream, rows * chunks), rows, n, chunks, x, sums);
  if (chunks > 1) sum_all<float>(stream, rows, chunks, sums, y);
}

// The largest of some numbers, seen in any order.
struct RowMaximum {
  float value = 0;
  int32_t column = INT32_MAX;  // nothing seen

  __device__ void see(float x, int32_t at) {
    const bool x_nan = x != x, value_nan = value != value;
    const bool larger = x_nan != value_nan ? x_nan : x > value, equal = x_nan ? value_nan : x == value;
    if (column == INT32_MAX || larger || (equal && at < column)) value = x, column = at;
  }
};

template <class T>
__global__ void __launch_bounds__(threads_a_block<32>) find_largest(Rows size, const T* x, int32_t* columns) {
  each_row<32>(size.rows, [&](int64_t row) {
    RowMaximum best;
    for (int64_t c = row_thread<32>(); c < size.cols; c += 32) best.see(float(x[row * size.cols + c]), int32_t(c));
    for (int distance = 16; distance > 0; distance /= 2) {
      const float value = __shfl_xor_sync(full_warp, best.value, distance);
      const int32_t column = __shfl_xor_sync(full_warp, best.column, distance);
      if (column != INT32_MAX) best.see(value, column);
    }
    if (row_thread<32>() == 0) columns[row] = best.column;
  });
}

}  // namespace

template <class T>
void sum(Stream stream, Reduction size, const T* x, Accum<T>* y) {
  if (size.outer * size.inner == 0) return;
  if (size.inner == 1)
    sum_all(stream, size.outer, size.n, x, y);
  else
    sum_columns(stream, size, x, y);
}

template <class T>
void argmax(Stream stream, Rows size, const T* x, int32_t* columns) {
  if (size.rows == 0) return;
  launch(find_largest<T>, over_rows<32>(stream, size.rows), size, x, columns);
}

CAIRN_GPU_TYPES(sum)
CAIRN_GPU_TYPES(argmax)

}  // namespace cairn::gpu
