#pragma once
// The operand of kernels that work on rows.
#include <cstdint>

namespace cairn {

// A matrix of contiguous rows.
struct Rows {
  int64_t rows = 0, cols = 0;
};

}  // namespace cairn
