#pragma once
// Lloyd's algorithm on the queries themselves: what clusters euclidean-C, and what refines the clusters of hashes.
#include "core/tensor.h"

namespace cairn {

// K-means from given labels, int32 [B, H, N]: `steps` times, each query joins the cluster whose mean is nearest (ties:
// the lowest index; a cluster without members stays empty), under the distance (q - c)^T A (q - c).
// q: [B, N, H, D]; lengths: int32 [B], queries beyond get -1 (undefined: none are); A: metric [B, H, D, D], symmetric
// (undefined: the identity; a factor changes nothing). Bfloat16 is computed in float32. Costs 2 N C D a step and head
// in arithmetic, and for a while N C numbers in memory.
Tensor lloyd(const Tensor& q, const Tensor& lengths, Tensor labels, int64_t clusters, int steps,
             const Tensor& metric = {});

// `steps` of it under the distance that the keys see: what moves the attention of a query is by how much its scores
// differ (Proposition 1), so A = K^T K, with K the keys k [B, S, H, D] within their lengths, minus their mean. (What is
// added to the scores of all keys alike changes no softmax.) Labels stay where there are as many clusters as queries,
// or no key.
Tensor refine(const Tensor& q, const Tensor& query_lengths, const Tensor& k, const Tensor& key_lengths,
              const Tensor& labels, int64_t clusters, int steps);

}  // namespace cairn
