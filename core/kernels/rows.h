#pragma once
// Picks rows of a table by index and adds rows to it: an embedding and its gradient. Also picks one element of each
// row.
#include <cstdint>

#include "core/dispatch.h"

namespace cairn {

// A matrix of contiguous rows.
struct Rows {
  int64_t rows = 0, cols = 0;
};

// `rows` rows of `cols` elements, and a table of `table` rows.
struct RowSelection {
  int64_t rows = 0, cols = 0, table = 0;
};

CAIRN_KERNELS(
    // out[r] = table[index[r]]; zeros if the index is outside [0, table).
    template <class T> void gather_rows(Stream, RowSelection, const T* table, const int32_t* index, T* out);
    // table[index[r]] += x[r] in the order of r; rows whose index is outside [0, table) are skipped.
    template <class T> void scatter_add_rows(Stream, RowSelection, const T* x, const int32_t* index, T* table);
    // y[r] = x[r, columns[r]] of x [rows, cols]; 0 if the column is outside [0, cols).
    template <class T> void gather_columns(Stream, Rows, const T* x, const int32_t* columns, T* y);
    // x[r, c] = y[r] for c = columns[r], else 0.
    template <class T> void scatter_columns(Stream, Rows, const T* y, const int32_t* columns, T* x);)

}  // namespace cairn
