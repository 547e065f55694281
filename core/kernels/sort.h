#pragma once
// Order within rows: stable sorting and the k largest.
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/matrix.h"

namespace cairn {

CAIRN_KERNELS(
    // permutation[r] lists the columns of row r by rising value, equal ones by rising column. NaN comes last.
    template <class T> void stable_sort(Stream, Rows, const T* x, int32_t* permutation);
    // The k <= cols largest of each row, largest first, equal ones by rising column; NaN counts as the largest.
    // values and columns are [rows, k].
    template <class T> void top_k(Stream, Rows, int64_t k, const T* x, T* values, int32_t* columns);)

}  // namespace cairn
