#include "autograd/ops.h"
#include "autograd/ops/saved_options.h"

namespace cairn {

// out_i = m_j (a_i V_T) + B_j with a_i = softmax over T_j of scale q_i . K_l. With g_i the gradient of out_i:
//   dm_j = sum_i g_i . (a_i V_T),  dB_j = sum_i g_i,  and attention over T_j with the gradient m_j g_i.
Variable topk_attention(const Variable& q, const Variable& k, const Variable& v, const Groups& groups,
                        const Tensor& topk, const Variable& mass, const Variable& rest,
                        const AttentionOptions& options) {
  const Tensor out = topk_attention(q.value(), k.value(), v.value(), groups, topk, mass.value(), rest.value(), options);
  return record("topk_attention", out, {q, k, v, mass, rest},
                [q = SavedTensor(q.value()), k = SavedTensor(k.value()), v = SavedTensor(v.value()),
                 mass = SavedTensor(mass.value()), groups, topk = SavedTensor(topk),
                 options = saved_options(options)](const Tensor& g) -> Gradients {
                  auto [dq, dk, dv, dmass, drest] =
                      topk_attention_backward(q(), k(), v(), groups, topk(), mass(), options(), g);
                  return {dq, dk, dv, dmass, drest};
                });
}

}  // namespace cairn
