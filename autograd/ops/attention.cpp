#include "autograd/ops.h"
#include "autograd/ops/saved_options.h"

namespace cairn {

// With A = softmax(scale Q K^T) and g the gradient of A V:
//   dV = A^T g,  dA = g V^T,  dS = scale A (dA - sum over keys of A dA),  dQ = dS K,  dK = dS^T Q.
// The kernel recomputes A, tile by tile, from the logsumexp of each query.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options) {
  const AttentionResult saved = attention(q.value(), k.value(), v.value(), options);
  return record(
      "attention", saved.out, {q, k, v},
      [q = SavedTensor(q.value()), k = SavedTensor(k.value()), v = SavedTensor(v.value()), out = SavedTensor(saved.out),
       options = saved_options(options), logsumexp = saved.logsumexp](const Tensor& g) -> Gradients {
        auto [dq, dk, dv] = attention_backward(q(), k(), v(), options(), {out(), logsumexp}, g);
        return {dq, dk, dv};
      });
}

}  // namespace cairn
