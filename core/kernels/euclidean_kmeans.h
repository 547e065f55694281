#pragma once
// K-means of the queries themselves under the Euclidean distance (Lloyd 1982; what reviewer 3 asks to compare hashing
// with).
#include "core/dispatch.h"
#include "core/kernels/cluster_draw.h"
#include "core/kernels/head_view.h"

namespace cairn {

// C clusters; `iterations` updates of the centroids, each after an assignment, and one assignment more.
struct EuclideanSize {
  int64_t B = 0, H = 0, N = 0, D = 0, C = 0;
  int iterations = 0;
};

// In how many parts the members of a cluster are added up, taken in turn; then the parts, in their order.
inline constexpr int mean_parts = 8;

CAIRN_KERNELS(
    // labels [B, H, N] of q [B, N, H, D]: the cluster of each query, -1 beyond the batch element's length (lengths [B],
    // or null: all N). Per (batch element, head), with n valid queries:
    //   start      centroid j is a query drawn from stratum j (cluster_draw.h)
    //   assign     each query to the nearest centroid: where 2 q . c - |c|^2 is largest, ties to the lowest index. A
    //              NaN is never the largest; where all are, label 0
    //   update     a centroid becomes the mean of its members; one without members a query drawn by (iteration,
    //              cluster)
    // C >= n: every query is its own cluster. Arithmetic is in Accum<T>: double for double, else float. Products are
    // chains of fused multiply-adds over d = 0 .. D-1 and means are added up in mean_parts, so the same q give the same
    // labels on every device and with any padding.
    template <class T>
    void euclidean_kmeans(Stream, EuclideanSize, HeadView<const T> q, const int32_t* lengths, Draw, int32_t* labels);)

}  // namespace cairn
