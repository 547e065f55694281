#pragma once
// The largest number of each row.
#include <cstdint>

#include "core/dispatch.h"
#include "core/host_device.h"

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

// Rows of which each batch element has `batch`, and of these `positions` follow one another, again and again (its
// heads).
struct RowsOfPositions {
  int64_t rows = 0, cols = 0, batch = 1, positions = 1;

  // Whether row r is within its batch element's length (lengths [B], or null: all are).
  CAIRN_HD bool valid(const int32_t* lengths, int64_t r) const {
    return lengths == nullptr || r % positions < lengths[r / batch];
  }
};

CAIRN_KERNELS(
    // columns[r]: where the largest number of row r stands, as RowMaximum finds it; -1 beyond the lengths. At least one
    // column.
    template <class T> void argmax(Stream, RowsOfPositions, const T* x, const int32_t* lengths, int32_t* columns);)

}  // namespace cairn
