#pragma once
// The size of what kernels over rows work on.
#include <cstdint>

namespace cairn {

// A matrix of contiguous rows.
struct Rows {
  int64_t rows = 0, cols = 0;
};

}  // namespace cairn
