#pragma once
// The largest number of each row.
#include <cstdint>

#include "core/dispatch.h"
#include "core/host_device.h"

namespace cairn {

// Rows [B, ..., positions, cols]: a batch element has `batch` rows, which are those of `positions` positions once per
// head.
struct RowsOfPositions {
  int64_t rows = 0, cols = 0, batch = 1, positions = 1;

  // Is row r within its batch element's length? (lengths [B]; null: all are.)
  CAIRN_HD bool valid(const int32_t* lengths, int64_t r) const {
    return lengths == nullptr || r % positions < lengths[r / batch];
  }
};

CAIRN_KERNELS(
    // columns[r]: the column of the largest number of row r, the first of equal ones; a NaN is the largest. -1 beyond
    // the lengths. There must be at least one column.
    template <class T> void argmax(Stream, RowsOfPositions, const T* x, const int32_t* lengths, int32_t* columns);)

}  // namespace cairn
