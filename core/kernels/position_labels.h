#pragma once
// Groups of consecutive queries, instead of clusters of similar ones.
#include <cstdint>

#include "core/dispatch.h"
#include "core/host_device.h"
#include "core/kernels/group.h"

namespace cairn {

// The group of query i out of n valid ones, of C groups: floor(i C / n). With `shift` it is the group of the query half
// a group further on; the last queries then share the first group. If C >= n, every query is its own group.
CAIRN_HD inline int32_t position_label(int64_t i, int64_t n, int64_t C, bool shift) {
  if (C > n) C = n;  // so that labels are below n
  if (shift) i = (i + (n + 2 * C - 1) / (2 * C)) % n;
  return int32_t(i * C / n);
}

CAIRN_KERNELS(
    // labels [B, H, N] in [0, C): position_label, -1 beyond the batch element's length (lengths [B], or null: all N).
    void position_labels(Stream, GroupSize, const int32_t* lengths, bool shift, int32_t* labels);)

}  // namespace cairn
