#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/topk_attention.h"
#include "core/ops/attention_checks.h"

namespace cairn {

// The sizes of q, k, v, groups, topk [B, H, C, T], mass [B, H, C] and of `more`.
static Sizes expect_topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                   const Tensor& topk, const Tensor& mass, const AttentionOptions& options,
                                   Operand more) {
  const Sizes s = expect_attention("topk_attention", q, k, v, options,
                                   {of_type(DType::int32, "topk", topk, "B H C T"), {"mass", mass, "B H C"}, more});
  groups.check("topk_attention", {s['B'], s['H'], s['N']}, q.device());
  check(s['C'] == groups.clusters(), "topk_attention: topk is of ", s['C'], " clusters, the groups have ",
        groups.clusters());
  check_top_keys("topk_attention", topk, s['S']);
  return s;
}

Tensor topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups, const Tensor& topk,
                      const Tensor& mass, const Tensor& rest, const AttentionOptions& options) {
  const Sizes s = expect_topk_attention(q, k, v, groups, topk, mass, options, {"rest", rest, "B C H M"});
  Tensor out({s['B'], s['N'], s['H'], s['M']}, q.dtype(), q.device());
  CAIRN_RUN("topk_attention", q,
            topk_attention_forward<T>(stream, operands<T>(kernel_size(s, options), q, k, v, options), s['C'], s['T'],
                                      view(groups), topk.data<int32_t>(), mass.data<T>(), head_view<T>(rest),
                                      head_view<T>(out)));
  return out;
}

TopKAttentionGradient topk_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                              const Tensor& topk, const Tensor& mass, const AttentionOptions& options,
                                              const Tensor& dout) {
  const Sizes s = expect_topk_attention(q, k, v, groups, topk, mass, options, {"the gradient", dout, "B N H M"});
  TopKAttentionGradient g{empty_like(q), empty_like(k), empty_like(v), empty_like(mass),
                          Tensor({s['B'], s['C'], s['H'], s['M']}, q.dtype(), q.device())};
  CAIRN_RUN("topk_attention", q,
            topk_attention_backward<T>(stream, operands<T>(kernel_size(s, options), q, k, v, options), s['C'], s['T'],
                                       view(groups), topk.data<int32_t>(), mass.data<T>(), head_view<T>(dout),
                                       head_view<T>(g.dq), head_view<T>(g.dk), head_view<T>(g.dv),
                                       g.dmass.mutable_data<T>(), head_view<T>(g.drest)));
  return g;
}

}  // namespace cairn
