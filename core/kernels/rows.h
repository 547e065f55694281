#pragma once
// Rows picked from and added into a table, by index: the embedding and its gradient. And one element picked from each
// row.
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/matrix.h"

namespace cairn {

// `rows` rows of `cols` elements on one side, a table of `table` rows on the other.
struct RowSelection {
  int64_t rows = 0, cols = 0, table = 0;
};

CAIRN_KERNELS(
    // out[r] = table[index[r]], zeros where the index is outside [0, table).
    template <class T> void gather_rows(Stream, RowSelection, const T* table, const int32_t* index, T* out);
    // table[index[r]] += x[r] in the order of r; rows whose index is outside are left out.
    template <class T> void scatter_add_rows(Stream, RowSelection, const T* x, const int32_t* index, T* table);
    // y[r] = x[r, columns[r]] of x [rows, cols], 0 where the column is outside [0, cols).
    template <class T> void gather_columns(Stream, Rows, const T* x, const int32_t* columns, T* y);
    // x[r, c] = y[r] for c = columns[r], else 0.
    template <class T> void scatter_columns(Stream, Rows, const T* y, const int32_t* columns, T* x);)

}  // namespace cairn
