#include "core/kernels/rows.h"

#include <algorithm>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void gather_rows(Stream, RowSelection size, const T* table, const int32_t* index, T* out) {
  const auto [rows, cols, table_rows] = size;
  parallel_for(rows, rows_a_task(cols), [=, cols = cols, table_rows = table_rows](int64_t begin, int64_t end) {
    const auto inside = [=](int64_t r) { return index[r] >= 0 && index[r] < table_rows; };
    each_fetched_row(
        end - begin, cols, [=](int64_t i) { return table + (inside(begin + i) ? index[begin + i] * cols : 0); },
        [=](int64_t i, const T* row) {
          if (inside(begin + i))
            std::copy_n(row, cols, out + (begin + i) * cols);
          else
            std::fill_n(out + (begin + i) * cols, cols, T(0));
        });
  });
}

// Tasks take columns, not rows, so that each element of the table adds its rows in order.
template <class T>
void scatter_add_rows(Stream, RowSelection size, const T* x, const int32_t* index, T* table) {
  const auto [rows, cols, table_rows] = size;
  parallel_for(cols, 64, [=, rows = rows, cols = cols, table_rows = table_rows](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r)
      if (index[r] >= 0 && index[r] < table_rows)
        add_scaled(table + index[r] * cols + begin, end - begin, T(1), x + r * cols + begin);
  });
}

template <class T>
void gather_columns(Stream, Rows size, const T* x, const int32_t* columns, T* y) {
  parallel_for(size.rows, 1 << 12, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      y[r] = columns[r] >= 0 && columns[r] < size.cols ? x[r * size.cols + columns[r]] : T(0);
  });
}

template <class T>
void scatter_columns(Stream, Rows size, const T* y, const int32_t* columns, T* x) {
  parallel_for(size.rows, rows_a_task(size.cols), [=](int64_t begin, int64_t end) {
    std::fill(x + begin * size.cols, x + end * size.cols, T(0));
    for (int64_t r = begin; r < end; ++r)
      if (columns[r] >= 0 && columns[r] < size.cols) x[r * size.cols + columns[r]] = y[r];
  });
}

CAIRN_CPU_TYPES(gather_rows)
CAIRN_CPU_TYPES(scatter_add_rows)
CAIRN_CPU_TYPES(gather_columns)
CAIRN_CPU_TYPES(scatter_columns)

}  // namespace cairn::cpu
