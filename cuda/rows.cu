// gather_rows: out[r] = table[index[r]], and its gradient, scatter_add_rows: table[index[r]] += x[r]. table [table,
// cols], index [rows], x and out [rows, cols], in float32 or bfloat16. Sums are in float32, in the order of the rows,
// rounded once.
//
// gather_columns: y[r] = x[r, columns[r]], and its gradient, scatter_columns. x [rows, cols], columns and y [rows].
//
// Launch.
//   gather       a warp takes a row of up to 1024 elements, a block of 256 threads a longer one, as in softmax.cu
//   scatter_add  clusters.cu sorts the rows by index. Then a warp takes the rows with one index and 128 columns, four a
//                lane. It adds the rows one after another: no atomics, so each sum has one order. A row of the table
//                that no index names is not touched.
//   pick         a thread takes an element of y
//   put          a warp takes a row of x
// Traffic, e bytes an element. gather: 2 e rows cols, the floor. scatter_add: e rows cols and 2 e cols for each row
// named, the floor; the sort reads the index once for each 512 rows of the table, from the L2 cache. If most rows
// have the same index, it is slow: one warp adds them all. Otherwise bound by memory.
#include "core/kernels/rows.h"

#include <algorithm>

#include "core/kernels/clusters.h"
#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int pick_threads = 256;
constexpr int columns_a_lane = 4, columns_a_warp = 32 * columns_a_lane;

template <class T, int threads, bool packs>
__global__ void __launch_bounds__(threads_a_block<threads>)
    gather(RowSelection size, const T* table, const int32_t* index, T* out) {
  each_row<threads>(size.rows, [&](int64_t row) {
    const int64_t from = index[row];
    const bool inside = from >= 0 && from < size.table;
    each_chunk<threads>(size.cols, [&](int64_t c) {
      const Chunk chunk = inside ? load_chunk<packs>(table + from * size.cols, size.cols, c) : Chunk{};
      store_chunk<packs>(chunk, out + row * size.cols, size.cols, c);
    });
  });
}

// order [rows]: the rows of x sorted by index; those of table row i begin at offsets[i].
template <class T>
__global__ void __launch_bounds__(threads_a_block<32>)
    add_rows(RowSelection size, int64_t column_parts, const T* x, const int32_t* index, const int32_t* order,
             const int32_t* offsets, T* table) {
  each_row<32>(size.rows * column_parts, [&](int64_t task) {
    const int64_t begin = task / column_parts, first_column = task % column_parts * columns_a_warp;
    const int32_t key = index[order[begin]];
    if (key < 0 || key >= size.table || offsets[key] != begin) return;  // outside, or not the first row of its index
    // Calls f(i, c) for the columns c of this lane.
    const auto each_column = [&](auto f) {
#pragma unroll
      for (int i = 0; i < columns_a_lane; ++i)
        if (const int64_t c = first_column + i * 32 + row_thread<32>(); c < size.cols) f(i, c);
    };
    T* const to = table + key * size.cols;
    float sum[columns_a_lane] = {};
    each_column([&](int i, int64_t c) { sum[i] = float(to[c]); });
    const int64_t end = offsets[key + 1];
    for (int64_t base = begin; base < end; base += 32) {  // each lane loads the index of one row
      const int32_t row = order[min(base + row_thread<32>(), end - 1)];
#pragma unroll 4
      for (int m = 0; m < min(end - base, int64_t{32}); ++m) {
        const T* const from = x + __shfl_sync(full_warp, row, m) * size.cols;
        each_column([&](int i, int64_t c) { sum[i] += float(from[c]); });
      }
    }
    each_column([&](int i, int64_t c) { to[c] = T(sum[i]); });
  });
}

template <class T>
__global__ void __launch_bounds__(pick_threads) pick(Rows size, const T* x, const int32_t* columns, T* y) {
  for (int64_t r = int64_t(blockIdx.x) * pick_threads + threadIdx.x; r < size.rows;
       r += int64_t(gridDim.x) * pick_threads) {
    const int32_t c = columns[r];
    y[r] = c >= 0 && c < size.cols ? x[r * size.cols + c] : T(0.0f);
  }
}

template <class T>
__global__ void __launch_bounds__(threads_a_block<32>) put(Rows size, const T* y, const int32_t* columns, T* x) {
  each_row<32>(size.rows, [&](int64_t row) {
    const int32_t column = columns[row];
    for (int64_t c = row_thread<32>(); c < size.cols; c += 32) x[row * size.cols + c] = c == column ? y[row] : T(0.0f);
  });
}

}  // namespace

template <class T>
void gather_rows(Stream stream, RowSelection size, const T* table, const int32_t* index, T* out) {
  if (size.rows == 0 || size.cols == 0) return;
  const Rows shape{size.rows, size.cols};
  launch_rows(stream, shape, rows_hold_packs(size.cols, table, out),
              [&]<int threads, bool packs>(const Launch& launched) {
                launch(gather<T, threads, packs>, launched, size, table, index, out);
              });
}

template <class T>
void scatter_add_rows(Stream stream, RowSelection size, const T* x, const int32_t* index, T* table) {
  if (size.rows == 0 || size.cols == 0 || size.table == 0) return;
  check<DeviceError>(std::max(size.rows, size.table) <= INT32_MAX, "scatter_add_rows: ", size.rows, " rows into ",
                     size.table, ", expected at most ", INT32_MAX);
  Workspace workspace(Device::cuda);
  int32_t* const order = workspace.take<int32_t>(size.rows);
  int32_t* const offsets = workspace.take<int32_t>(size.table + 1);
  sort_by_label(stream, {1, 1, size.rows, size.table}, index, order, offsets);
  const int64_t column_parts = ceil_div(size.cols, columns_a_warp);
  launch(add_rows<T>, over_rows<32>(stream, size.rows * column_parts), size, column_parts, x, index, order, offsets,
         table);
}

template <class T>
void gather_columns(Stream stream, Rows size, const T* x, const int32_t* columns, T* y) {
  if (size.rows == 0) return;
  launch(pick<T>, {blocks(ceil_div(size.rows, pick_threads)), pick_threads, 0, stream}, size, x, columns, y);
}

template <class T>
void scatter_columns(Stream stream, Rows size, const T* y, const int32_t* columns, T* x) {
  if (size.rows == 0 || size.cols == 0) return;
  launch(put<T>, over_rows<32>(stream, size.rows), size, y, columns, x);
}

CAIRN_GPU_TYPES(gather_rows)
CAIRN_GPU_TYPES(scatter_add_rows)
CAIRN_GPU_TYPES(gather_columns)
CAIRN_GPU_TYPES(scatter_columns)

}  // namespace cairn::gpu
