#pragma once
// The parts of improved clustered attention, on tensors: each file has the equations of one part and their gradients.
// improved_clustered.cpp puts the parts in order. Shapes and errors are those of autograd/ops.h.
#include "autograd/ops.h"

namespace cairn {

// ---- means of clusters (cluster_mean.cpp, equation 3)
// Adds the gradient of cluster_mean(x, clusters) to dx, in place.
void cluster_mean_backward(const Tensor& dmean, const Clusters& clusters, Tensor& dx);

// ---- attention of centroids, split into their top keys and the rest (centroid_topk.cpp, equations 4, 9 and 17)
struct CentroidTopK {
  Tensor topk;       // int32 [B, H, C, top]
  Tensor logsumexp;  // [B, H, C]
  Tensor mass;       // [B, H, C]: the sum of the attention to the top keys
  Tensor rest;  // [B, C, H, M]: the sum over the other keys of attention times value; undefined without `with_rest`
};
// The top keys are `given`, int32 [B, H, C, top], each row rising and then -1; if undefined, those with the largest
// scores. Error: top < 1.
CentroidTopK centroid_topk(const Tensor& centroids, const Tensor& k, const Tensor& v, int64_t top, bool with_rest,
                           const AttentionOptions& options, const Tensor& given = {});
// The gradient of the centroids; adds those of k and v to dk and dv, in place.
Tensor centroid_topk_backward(const Tensor& centroids, const Tensor& k, const Tensor& v,
                              const AttentionOptions& options, const CentroidTopK& saved, const Tensor& dmass,
                              const Tensor& drest, Tensor& dk, Tensor& dv);

// ---- each query over the top keys of its cluster (topk_attention.cpp, equations 10 and 11)
// Without mass [B, H, C] and rest [B, C, H, M], which are undefined together, the mass is 1 and the rest 0. Writes the
// logsumexp of each query's scores [B, H, N], unless it is null.
Tensor topk_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Clusters& clusters,
                              const Tensor& topk, const Tensor& mass, const Tensor& rest,
                              const AttentionOptions& options, Tensor* logsumexp = nullptr);
struct TopKAttentionGradient {
  Tensor dq, dk, dv, dmass, drest;  // the last two undefined without mass and rest
};
TopKAttentionGradient topk_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Clusters& clusters, const Tensor& topk, const Tensor& mass,
                                              const AttentionOptions& options, const Tensor& dout,
                                              const Tensor& dlogsumexp = {});

}  // namespace cairn
