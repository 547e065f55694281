#include "autograd/ops/improved_clustered.h"

#include "autograd/ops/saved_options.h"

namespace cairn {

// The gradients of the parts, from the last to the first. Each adds in place to what those before it have computed; the
// tape would need three more tensors.
ImprovedClusteredResult improved_clustered(const Variable& q, const Variable& k, const Variable& v,
                                           const Clusters& clusters, int64_t top, const AttentionOptions& options,
                                           const AttentionOptions& rest_options, bool mass_gradient,
                                           const Tensor& given) {
  const Tensor c = cluster_mean(q.value(), clusters);  // (3)
  // (4), (9), the second case of (10), and (17)
  const CentroidTopK split = centroid_topk(c, k, v, top, true, rest_options, given);
  // The first case of (10), and (11)
  const Tensor out = topk_attention_forward(q, k, v, clusters, split.topk, split.mass, split.rest, options);
  const Variable result =
      record("improved_clustered", out, {q, k, v},
             [q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v), c = SavedTensor(c),
              topk = SavedTensor(split.topk), mass = SavedTensor(split.mass), rest = SavedTensor(split.rest),
              logsumexp = split.logsumexp, clusters, options = saved_options(options),
              rest_options = saved_options(rest_options), mass_gradient](const Tensor& g) -> Gradients {
               TopKAttentionGradient d = topk_attention_backward(q(), k(), v(), clusters, topk(), mass(), options(), g);
               // [lesson 9
               if (!mass_gradient) d.dmass = Tensor::zeros(d.dmass.shape(), d.dmass.dtype(), d.dmass.device());
               const Tensor dc = centroid_topk_backward(
                   c(), k(), v(), rest_options(), {topk(), logsumexp, mass(), rest()}, d.dmass, d.drest, d.dk, d.dv);
               cluster_mean_backward(dc, clusters, d.dq);
               // lesson 9]
               return {d.dq, d.dk, d.dv};
             });
  return {result, split.topk, split.mass};
}

}  // namespace cairn
