#pragma once
// Tensor operations of the attention family. Shapes: q [B, N, H, D], k [B, S, H, D], v [B, S, H, M]; a single-headed or
// projected tensor [B, N, H * D] is the same memory. Labels, groups and top keys carry no gradient.
#include "core/kernels/attention.h"
#include "core/kernels/group.h"
#include "core/kernels/hash_codes.h"
#include "core/kernels/segment_mean.h"
#include "core/ops.h"

namespace cairn {

// Which keys each query may attend to; what is undefined masks nothing.
struct AttentionMask {
  Tensor query_lengths;  // int32 [B]: queries beyond get zeros
  Tensor key_lengths;    // int32 [B]: keys beyond get no weight
  Tensor allowed;        // bool, broadcastable to [B, H, N, S]: true = may attend
  bool causal = false;   // key j is visible to query i when j <= i
  Pattern pattern{};     // and what is visible by positions besides

  bool elementwise() const { return allowed.defined() || causal || !pattern.all(); }
  // The same without the queries' lengths, for queries that are centroids.
  AttentionMask of_keys() const { return {{}, key_lengths, {}, false}; }
};

// How weights are dropped: p = 0, nothing.
struct AttentionDropout {
  double p = 0;
  RandomDraw draw{};
};

// What an attention operation computes besides its operands. scale 0 stands for 1 / sqrt(D).
struct AttentionOptions {
  AttentionMask mask{};
  AttentionDropout dropout{};
  double scale = 0;
};

// The checked sizes of q, k, v. Errors name the operation, the argument, both shapes.
AttentionSize attention_size(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options);

// ---- full attention
struct AttentionResult {
  Tensor out, logsumexp;  // [B, N, H, M], [B, H, N]
};
AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});
struct AttentionGradient {
  Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                     const AttentionResult& kept, const Tensor& dout);

// ---- clusters of queries
// planes [bits, D + 1], float32. Error: bits outside 1..64.
Tensor random_planes(int bits, int64_t D, bool bias, const RandomDraw& draw, Device device);
// uint64 [B, H, N]. Error: planes that do not fit q, or more than 64 of them.
Tensor hash_codes(const Tensor& q, const Tensor& planes);
// int32 [B, H, N], -1 beyond the lengths (undefined: all N). Errors: clusters < 1, bits outside 1..64, iterations < 0.
Tensor hamming_kmeans(const Tensor& codes, const Tensor& lengths, int64_t clusters, int bits, int iterations,
                      const RandomDraw& draw);

// A partition of queries. Members of cluster c: permutation[offsets[c]] up to permutation[offsets[c + 1]], rising.
struct Groups {
  Tensor labels;       // int32 [B, H, N], -1: none
  Tensor permutation;  // int32 [B, H, N]
  Tensor offsets;      // int32 [B, H, C + 1]
  int64_t clusters = 0;

  // Members of each cluster, int32 [B, H, C].
  Tensor counts() const;
};
// Error: clusters < 0. Labels outside [0, clusters) count as -1.
Groups group(const Tensor& labels, int64_t clusters);

// Sum or mean of x [B, N, H, D] over each cluster: [B, C, H, D].
Tensor segment_reduce(Segment kind, const Tensor& x, const Groups& groups);
// Each query gets its cluster's row of x [B, C, H, D] (with `mean`, divided by the cluster's size): [B, N, H, D].
Tensor segment_broadcast(Segment kind, const Tensor& x, const Groups& groups);

// ---- top keys of centroids
struct CentroidTopK {
  Tensor topk;       // int32 [B, H, C, k]
  Tensor logsumexp;  // [B, H, C]
  Tensor mass;       // [B, H, C]
  Tensor rest;       // [B, C, H, M], undefined where not asked for
};
// `given`: the top keys, int32 [B, H, C, top], each row rising and then -1; undefined: the largest. Error: top < 1.
CentroidTopK centroid_topk(const Tensor& centroids, const Tensor& k, const Tensor& v, int64_t top, bool with_rest,
                           const AttentionOptions& options, const Tensor& given = {});
AttentionGradient centroid_topk_backward(const Tensor& centroids, const Tensor& k, const Tensor& v,
                                         const AttentionOptions& options, const CentroidTopK& kept, const Tensor& dmass,
                                         const Tensor& drest);

// mass and rest may both be undefined: 1 and 0.
Tensor topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups, const Tensor& topk,
                      const Tensor& mass, const Tensor& rest, const AttentionOptions& options);
struct TopKAttentionGradient {
  Tensor dq, dk, dv, dmass, drest;  // the last two undefined where mass and rest are
};
TopKAttentionGradient topk_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                              const Tensor& topk, const Tensor& mass, const AttentionOptions& options,
                                              const Tensor& dout);

}  // namespace cairn
