#pragma once
// Clusters of queries: a stable counting sort by cluster, and clusters of consecutive queries.
#include <cstdint>

#include "core/dispatch.h"
#include "core/host_device.h"

namespace cairn {

struct ClusterSizes {
  int64_t B = 0, H = 0, N = 0, C = 0;
};

// The queries of cluster c of a (batch element, head) are permutation[offsets[c]] up to permutation[offsets[c + 1]], in
// rising order. Queries of no cluster (label -1) come last, from offsets[C] on.
struct ClusterView {
  const int32_t* labels = nullptr;       // [B, H, N]
  const int32_t* permutation = nullptr;  // [B, H, N]
  const int32_t* offsets = nullptr;      // [B, H, C + 1]
};

// The cluster of query i out of n valid ones, of C clusters of consecutive queries: floor(i C / n). With `shift` it is
// the cluster of the query half a cluster further on; the last queries then share the first cluster. If C >= n, every
// query is its own cluster.
CAIRN_HD inline int32_t position_label(int64_t i, int64_t n, int64_t C, bool shift) {
  if (C > n) C = n;  // so that labels are below n
  if (shift) i = (i + (n + 2 * C - 1) / (2 * C)) % n;
  return int32_t(i * C / n);
}

CAIRN_KERNELS(
    // Sorts queries, or whatever has labels. Labels outside [0, C) count as -1.
    void sort_by_label(Stream, ClusterSizes, const int32_t* labels, int32_t* permutation, int32_t* offsets);
    // members [B, H, C, width]: the first `width` members of each cluster, then -1.
    void list_members(Stream, ClusterSizes, int64_t width, ClusterView, int32_t* members);
    // labels [B, H, N] in [0, C): position_label, -1 beyond the batch element's length (lengths [B], or null: all N).
    void position_labels(Stream, ClusterSizes, const int32_t* lengths, bool shift, int32_t* labels);)

}  // namespace cairn
