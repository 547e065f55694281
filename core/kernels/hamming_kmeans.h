#pragma once
// K-means of binary codes under the Hamming distance (the paper's section 3.2.2, step 2).
#include "core/dispatch.h"
#include "core/kernels/cluster_draw.h"
#include "core/kernels/head_view.h"

namespace cairn {

// C clusters; `iterations` times an assignment and an update of the centroids, and then one more assignment.
struct KMeansSize {
  int64_t B = 0, H = 0, N = 0, C = 0;
  int bits = 0, iterations = 0;
};

CAIRN_KERNELS(
    // labels [B, H, N] of codes [B, H, N] (bits from `bits` up are 0): the cluster of each query, -1 beyond the batch
    // element's length (lengths [B], or null: all N). Per (batch element, head), with n valid queries:
    //   start      centroid j is the code of a query drawn from stratum j (cluster_draw.h)
    //   assign     each code to the nearest centroid, ties to the lowest index
    //   update     each bit of a centroid becomes the strict majority of its members', on a tie it stays; a centroid
    //              without members becomes the code of a query drawn by (iteration, cluster)
    // C >= n: every query is its own cluster.
    void hamming_kmeans(Stream, KMeansSize, const uint64_t* codes, const int32_t* lengths, Draw, int32_t* labels);)

}  // namespace cairn
