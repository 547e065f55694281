#include "autograd/ops.h"
#include "autograd/ops/saved_options.h"

namespace cairn {

// With A^c = softmax(scale Q^c K^T), m = sum of A^c over the top keys, rest B = sum of A^c V over the other keys, for
// fixed top keys:
//   dA^c_l = dm for l in top, else dB . V_l;   dS^c = A^c (dA^c - m dm - B . dB)
//   dQ^c = scale dS^c K,  dK = scale dS^c^T Q^c,  dV_l = sum over centroids of A^c_l dB for l outside top
TopKeysAndRest centroid_topk(const Variable& centroids, const Variable& k, const Variable& v, int64_t top,
                             const AttentionOptions& options, const Tensor& given) {
  const CentroidTopK saved = centroid_topk(centroids.value(), k.value(), v.value(), top, true, options, given);
  const auto gradient = [q = SavedTensor(centroids.value()), k = SavedTensor(k.value()), v = SavedTensor(v.value()),
                         rest = SavedTensor(saved.rest), mass = SavedTensor(saved.mass), topk = SavedTensor(saved.topk),
                         logsumexp = saved.logsumexp,
                         options = saved_options(options)](const Gradients& g, const Gradients& sums) -> Gradients {
    const bool add = sums[1].defined() && sums[2].defined();  // the gradients of the top keys are there already
    auto [dq, dk, dv] = centroid_topk_backward(q(), k(), v(), options(), {topk(), logsumexp, mass(), rest()}, g[0],
                                               g[1], add ? sums[1] : Tensor(), add ? sums[2] : Tensor());
    return add ? Gradients{dq, {}, {}} : Gradients{dq, dk, dv};
  };
  auto outputs = record_outputs("centroid_topk", {saved.mass, saved.rest}, {centroids, k, v}, gradient);
  return {saved.topk, outputs[0], outputs[1]};
}

}  // namespace cairn
