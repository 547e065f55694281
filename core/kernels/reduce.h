#pragma once
// Sums over one axis, and the largest number of each row.
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/rows.h"

namespace cairn {

// Over the middle axis of [outer, n, inner], giving [outer, inner].
struct Reduction {
  int64_t outer = 1, n = 1, inner = 1;
};

CAIRN_KERNELS(
    // y[o, i] = sum over j of x[o, j, i].
    template <class T> void sum(Stream, Reduction, const T* x, Accum<T>* y);
    // columns[r]: the column of the largest number of row r, the first of equal ones; a NaN is the largest. There must
    // be at least one column.
    template <class T> void argmax(Stream, Rows, const T* x, int32_t* columns);)

}  // namespace cairn
