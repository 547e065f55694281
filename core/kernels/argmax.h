#pragma once
// The largest number of each row.
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/matrix.h"

namespace cairn {

// The largest of numbers that are seen in any order, of equal ones the first column's. A NaN is larger than any number.
template <class T>
struct RowMaximum {
  T value{};
  int32_t column = INT32_MAX;  // nothing seen

  CAIRN_HD void see(T x, int32_t at) {
    const bool x_nan = x != x, value_nan = value != value;
    const bool larger = x_nan != value_nan ? x_nan : x > value, equal = x_nan ? value_nan : x == value;
    if (column == INT32_MAX || larger || (equal && at < column)) value = x, column = at;
  }
};

CAIRN_KERNELS(
    // columns[r]: where the largest number of row r stands, as RowMaximum finds it. At least one column.
    template <class T> void argmax(Stream, Rows, const T* x, int32_t* columns);)

}  // namespace cairn
