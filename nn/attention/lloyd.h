#pragma once
// Lloyd's algorithm on the queries themselves. It clusters for euclidean-C, and refines the clusters of clustered-C.
#include "core/tensor.h"

namespace cairn {

// K-means from given labels. `steps` times, each query joins the cluster whose mean c is nearest under the distance
// (q - c)^T metric (q - c). Ties go to the lowest index, and a cluster without members stays empty. In a batch element
// with at most C queries, the labels stay as they are.
//   q        [B, N, H, D]; bfloat16 is computed in float32
//   lengths  int32 [B]: queries beyond their length get -1; undefined: all queries count
//   labels   int32 [B, H, N], of C clusters
//   metric   [B, H, D, D], symmetric, up to a positive factor; undefined: the identity
// Time per step and head: N C dot products of length D. Temporary memory per head: N (C + D) elements. Devices may
// differ at near-ties.
Tensor lloyd(const Tensor& q, const Tensor& lengths, const Tensor& labels, int64_t C, int steps,
             const Tensor& metric = {});

// The same under the distance that the keys see, |K (q - c)|^2: by how much the scores of q and c differ. Queries whose
// scores differ little have similar attention (Proposition 1). K has the keys k [B, S, H, D] within their lengths,
// minus their mean, because a number added to all scores of a query does not change its softmax. So the metric is
// K^T K; it takes S D dot products, once. Labels stay in a batch element without a key.
Tensor refine(const Tensor& q, const Tensor& query_lengths, const Tensor& k, const Tensor& key_lengths,
              const Tensor& labels, int64_t C, int steps);

}  // namespace cairn
