// Rows picked from and added into a table [table, cols], by index [rows]; x and out are [rows, cols]. float32 or
// bfloat16; an element of the table sums in float32, in the order of the rows, and is rounded once.
//
// One element picked from each row of x [rows, cols], and its gradient.
//
// Launch.
//   gather       a warp takes a row, a lane every 32nd word: 16 bytes where rows and addresses allow it, or an element
//   scatter_add  a warp takes 128 columns of a row of the table, four a lane. It goes through the index, 32 entries
//                at a time, and adds the rows that it finds: no atomics, so the sums have one order. A row of the
//                table that is not named is not touched.
//   pick, put    a thread takes an element of y, or of x
// Traffic, e bytes an element. gather: 2 e rows cols, the floor. scatter_add: e rows cols and 2 e cols for each row
// named, the floor, and table * cols / 128 readings of the index, from the cache mostly: they bound it where the table
// is large.
#include "core/kernels/rows.h"

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int columns_a_lane = 4, columns_a_warp = 32 * columns_a_lane;

// `words` words a row.
template <class Word>
__global__ void __launch_bounds__(32 * rows_per_block)
    gather(int64_t rows, int64_t words, int64_t table_rows, const Word* table, const int32_t* index, Word* out) {
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const int64_t from = index[row];
    const bool inside = from >= 0 && from < table_rows;
    for (int64_t c = threadIdx.x % 32; c < words; c += 32)
      out[row * words + c] = inside ? table[from * words + c] : Word{};
  }
}

template <class T>
__global__ void __launch_bounds__(32 * rows_per_block)
    scatter_add(RowSelection size, int64_t tiles, const T* x, const int32_t* index, T* table) {
  const int lane = int(threadIdx.x % 32);
  for (int64_t task = first_row(); task < size.table * tiles; task += row_step()) {
    const int64_t row = task / tiles, first = task % tiles * columns_a_warp;
    const int64_t cols = min(size.cols - first, int64_t(columns_a_warp));
    T* const to = table + row * size.cols + first;
    float sum[columns_a_lane] = {};
    bool named = false;
    for (int64_t base = 0; base < size.rows; base += 32) {
      uint32_t found = __ballot_sync(full_warp, base + lane < size.rows && index[base + lane] == row);
      if (found != 0 && !named) {
        named = true;
        each_kept<columns_a_lane>(cols, [&](int i, int64_t c) { sum[i] = float(to[c]); });
      }
      for (; found != 0; found &= found - 1) {
        const T* from = x + (base + __ffs(int(found)) - 1) * size.cols + first;
        each_kept<columns_a_lane>(cols, [&](int i, int64_t c) { sum[i] += float(from[c]); });
      }
    }
    if (named) each_kept<columns_a_lane>(cols, [&](int i, int64_t c) { to[c] = T(sum[i]); });
  }
}

template <class T>
__global__ void __launch_bounds__(256) pick(Rows size, const T* x, const int32_t* columns, T* y) {
  for (int64_t r = int64_t(blockIdx.x) * 256 + threadIdx.x; r < size.rows; r += int64_t(gridDim.x) * 256) {
    const int32_t c = columns[r];
    y[r] = c >= 0 && c < size.cols ? x[r * size.cols + c] : T(0.0f);
  }
}

template <class T>
__global__ void __launch_bounds__(256) put(Rows size, const T* y, const int32_t* columns, T* x) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < size.rows * size.cols; i += int64_t(gridDim.x) * 256)
    x[i] = i % size.cols == columns[i / size.cols] ? y[i / size.cols] : T(0.0f);
}

}  // namespace

template <class T>
void gather_rows(Stream stream, RowSelection size, const T* table, const int32_t* index, T* out) {
  const auto [rows, cols, table_rows] = size;
  if (rows == 0 || cols == 0) return;
  constexpr int width = 16 / sizeof(T);
  const Launch shape{blocks(ceil_div(rows, rows_per_block)), 32 * rows_per_block, 0, stream};
  using Word = Pack<T, width>;
  if (cols % width == 0 && holds_packs<width>(table, out))
    launch(gather<Word>, shape, rows, cols / width, table_rows, reinterpret_cast<const Word*>(table), index,
           reinterpret_cast<Word*>(out));
  else
    launch(gather<T>, shape, rows, cols, table_rows, table, index, out);
}

template <class T>
void scatter_add_rows(Stream stream, RowSelection size, const T* x, const int32_t* index, T* table) {
  if (size.rows == 0 || size.cols == 0 || size.table == 0) return;
  const int64_t tiles = ceil_div(size.cols, columns_a_warp);
  launch(scatter_add<T>, {blocks(ceil_div(size.table * tiles, rows_per_block)), 32 * rows_per_block, 0, stream}, size,
         tiles, x, index, table);
}

template <class T>
void gather_columns(Stream stream, Rows size, const T* x, const int32_t* columns, T* y) {
  if (size.rows == 0) return;
  launch(pick<T>, {blocks(ceil_div(size.rows, 256)), 256, 0, stream}, size, x, columns, y);
}

template <class T>
void scatter_columns(Stream stream, Rows size, const T* y, const int32_t* columns, T* x) {
  if (size.rows == 0 || size.cols == 0) return;
  launch(put<T>, {blocks(ceil_div(size.rows * size.cols, 256)), 256, 0, stream}, size, y, columns, x);
}

CAIRN_GPU_TYPES(gather_rows)
CAIRN_GPU_TYPES(scatter_add_rows)
CAIRN_GPU_TYPES(gather_columns)
CAIRN_GPU_TYPES(scatter_columns)

}  // namespace cairn::gpu
