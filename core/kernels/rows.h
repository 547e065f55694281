#pragma once
// Rows picked from and added into a table, by index. The embedding and its gradient.
#include <cstdint>

#include "core/dispatch.h"

namespace cairn {

// `rows` rows of `cols` elements on one side, a table of `table` rows on the other.
struct RowSelection {
  int64_t rows = 0, cols = 0, table = 0;
};

CAIRN_KERNELS(
    // out[r] = table[index[r]], zeros where the index is outside [0, table).
    template <class T> void gather_rows(Stream, RowSelection, const T* table, const int32_t* index, T* out);
    // table[index[r]] += x[r] in the order of r; rows whose index is outside are left out.
    template <class T> void scatter_add_rows(Stream, RowSelection, const T* x, const int32_t* index, T* table);)

}  // namespace cairn
