#include "autograd/ops.h"

namespace cairn {

// With A = softmax(scale Q K^T) and g the gradient of A V:
//   dV = A^T g,  dA = g V^T,  dS = scale A (dA - sum over keys of A dA),  dQ = dS K,  dK = dS^T Q.
// The kernel computes A again, tile by tile, from one logsumexp a query.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options) {
  const AttentionResult kept = attention(q.value(), k.value(), v.value(), options);
  return record("attention", kept.out, {q, k, v},
                [q = Saved(q.value()), k = Saved(k.value()), v = Saved(v.value()), out = Saved(kept.out),
                 unchanged = Unchanged(options), options, logsumexp = kept.logsumexp](const Tensor& g) -> Gradients {
                  unchanged();
                  auto [dq, dk, dv] = attention_backward(q(), k(), v(), options, {out(), logsumexp}, g);
                  return {dq, dk, dv};
                });
}

}  // namespace cairn
