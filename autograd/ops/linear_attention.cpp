#include "autograd/ops.h"
#include "autograd/ops/guard.h"

namespace cairn {

// With p_i = phi(q_i), c_j = phi(k_j), sums over the keys j that query i sees, and z_j dropout:
//   S_i = sum_j z_j c_j v_j^T,  s_i = sum_j c_j,  d_i = p_i . s_i,  out_i = S_i^T p_i / d_i.
// With g_i the gradient of out_i and delta_i = g_i . out_i:  dn_i = g_i / d_i,  dd_i = -delta_i / d_i,  and so
//   dp_i = (S_i g_i - delta_i s_i) / d_i,                        dq_i = phi'(q_i) dp_i elementwise.
// With sums over the queries i that see key j:
//   R_j = sum_i p_i g_i^T / d_i,  r_j = sum_i p_i delta_i / d_i,
//   dc_j = z_j R_j v_j - r_j,  dk_j = phi'(k_j) dc_j elementwise,  dv_j = z_j R_j^T c_j.
Variable linear_attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options) {
  const LinearAttentionResult saved = linear_attention(q.value(), k.value(), v.value(), options);
  return record(
      "linear_attention", saved.out, {q, k, v},
      [q = SavedTensor(q.value()), k = SavedTensor(k.value()), v = SavedTensor(v.value()), out = SavedTensor(saved.out),
       guard = guard(options.mask), options, denominators = saved.denominators](const Tensor& g) -> Gradients {
        guard();
        auto [dq, dk, dv] = linear_attention_backward(q(), k(), v(), options, {out(), denominators}, g);
        return {dq, dk, dv};
      });
}

}  // namespace cairn
