#pragma once
// K-means of binary codes under the Hamming distance (the paper's section 3.2.2, step 2).
#include "core/dispatch.h"
#include "core/philox.h"

namespace cairn {

// C clusters. Each iteration assigns the codes and updates the centroids; one more assignment follows.
struct KMeansSize {
  int64_t B = 0, H = 0, N = 0, C = 0;
  int iterations = 0;
};

// A random query out of n valid ones, for cluster c of C <= n: in iteration 0 from stratum c, positions floor(c n / C)
// up to floor((c + 1) n / C); later from all. The batch element is no coordinate: each example draws as if it were
// alone, so that its clusters do not depend on its place in the batch.
CAIRN_HD inline int64_t draw_query(PhiloxKey key, int64_t head, int64_t c, int64_t C, int64_t n, int iteration) {
  const int64_t low = iteration == 0 ? c * n / C : 0, high = iteration == 0 ? (c + 1) * n / C : n;
  const PhiloxWords words = philox(key, {{uint32_t(head), uint32_t(c), uint32_t(iteration), 0}});
  return low + below(words.w[0], uint32_t(high - low));
}

// 64 random bits that decide the ties of cluster c in an iteration; from the same Philox call as draw_query.
CAIRN_HD inline uint64_t draw_ties(PhiloxKey key, int64_t head, int64_t c, int iteration) {
  const PhiloxWords words = philox(key, {{uint32_t(head), uint32_t(c), uint32_t(iteration), 0}});
  return uint64_t(words.w[3]) << 32 | words.w[2];
}

CAIRN_KERNELS(
    // labels [B, H, N] of codes [B, H, N]: the cluster of each query, -1 beyond the batch element's length (lengths
    // [B], or null: all N). Per (batch element, head), with n valid queries:
    //   start      centroid j is the code of a query drawn from stratum j (draw_query)
    //   assign     each code goes to the nearest centroid, the lowest index of equally near ones
    //   update     each bit of a centroid becomes the strict majority of its members' bits; a tie takes the bit of
    //              draw_ties (keeping the old bit would end k-means after one or two iterations). A centroid without
    //              members becomes the code of a query drawn by (iteration, cluster)
    // If C >= n, every query is its own cluster.
    void hamming_kmeans(Stream, KMeansSize, const uint64_t* codes, const int32_t* lengths, Draw, int32_t* labels);)

}  // namespace cairn
