#include "core/kernels/attention.h"

#include "autograd/ops.h"
#include "autograd/ops/saved_options.h"
#include "core/ops/attention_checks.h"

namespace cairn {

// With A = softmax(scale Q K^T) and g the gradient of A V:
//   dV = A^T g,  dA = g V^T,  dS = A (dA - sum over keys of A dA),  dQ = scale dS K,  dK = scale dS^T Q.
// The kernel recomputes A, tile by tile, from the logsumexp of each query.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options) {
  const AttentionSize size = kernel_size(expect_attention("attention", q, k, v, options), options);
  Tensor out({size.B, size.N, size.H, size.M}, q.dtype(), q.device());
  Tensor logsumexp({size.B, size.H, size.N}, sums_of(out), q.device());
  CAIRN_RUN("attention", out,
            attention_forward<T>(stream, operands<T>(size, q, k, v, options), head_view<T>(out),
                                 logsumexp.mutable_data<Accum<T>>()));
  return record("attention", out, {q, k, v},
                [size, q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v), out = SavedTensor(out),
                 options = saved_options(options), logsumexp](const Tensor& g) -> Gradients {
                  Tensor dq = empty_like(q()), dk = empty_like(k()), dv = empty_like(v());
                  const AttentionSize written = unless_empty(size, dq.elements() + dk.elements() + dv.elements());
                  CAIRN_RUN("attention", g,
                            attention_backward<T>(stream, operands<T>(written, q(), k(), v(), options()),
                                                  head_view<T>(out()), logsumexp.data<Accum<T>>(), head_view<T>(g),
                                                  head_view<T>(dq), head_view<T>(dk), head_view<T>(dv)));
                  return {dq, dk, dv};
                });
}

}  // namespace cairn
