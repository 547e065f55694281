#pragma once
// A stable counting sort of queries by their cluster.
#include <cstdint>

#include "core/dispatch.h"

namespace cairn {

struct GroupSize {
  int64_t B = 0, H = 0, N = 0, C = 0;
};

// The queries of cluster c of a (batch element, head) are permutation[offsets[c]] up to permutation[offsets[c + 1]], in
// rising order. Queries of no cluster (label -1) come last, from offsets[C] on.
struct GroupView {
  const int32_t* labels = nullptr;       // [B, H, N]
  const int32_t* permutation = nullptr;  // [B, H, N]
  const int32_t* offsets = nullptr;      // [B, H, C + 1]
};

CAIRN_KERNELS(
    // Labels outside [0, C) count as -1.
    void group(Stream, GroupSize, const int32_t* labels, int32_t* permutation, int32_t* offsets);)

}  // namespace cairn
