#pragma once
// The largest number of each row.
#include <cstdint>

#include "core/dispatch.h"
#include "core/host_device.h"

namespace cairn {

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
    // columns[r]: where the largest number of row r stands; of equal ones the first, a NaN the largest; -1 beyond the
    // lengths. At least one column.
    template <class T> void argmax(Stream, RowsOfPositions, const T* x, const int32_t* lengths, int32_t* columns);)

}  // namespace cairn
