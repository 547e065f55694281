#pragma once
// The largest number of each row.
#include "core/dispatch.h"
#include "core/kernels/rows.h"

namespace cairn {

CAIRN_KERNELS(
    // columns[r]: the column of the largest number of row r, the first of equal ones; a NaN is the largest. There must
    // be at least one column.
    template <class T> void argmax(Stream, Rows, const T* x, int32_t* columns);)

}  // namespace cairn
