#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/topk_attention.h"
#include "core/ops/attention_checks.h"

namespace cairn {

static AttentionSize check_topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                          const Tensor& topk, const Tensor& mass, const AttentionOptions& options) {
  const AttentionSize size = attention_size("topk_attention", q, k, v, options);
  groups.check("topk_attention", {size.B, size.H, size.N}, q.device());
  check_tensor("topk_attention", "topk", topk, DType::int32, q.device());
  check(topk.rank() == 4, "topk_attention: expected topk [B, H, C, k], got ", topk.shape());
  check_top_keys("topk_attention", "topk", topk, {size.B, size.H, groups.clusters(), topk.size(3)}, size.S, q.device());
  if (!mass.defined()) return size;
  check_operands("topk_attention", {{"q", q}, {"mass", mass}});
  check_shape("topk_attention", "mass", mass, topk.shape().without(-1));
  return size;
}

Tensor topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups, const Tensor& topk,
                      const Tensor& mass, const Tensor& rest, const AttentionOptions& options) {
  const AttentionSize size = check_topk_attention(q, k, v, groups, topk, mass, options);
  check(mass.defined() == rest.defined(), "topk_attention: mass and rest go together");
  if (rest.defined()) {
    check_operands("topk_attention", {{"q", q}, {"rest", rest}});
    check_shape("topk_attention", "rest", rest, {size.B, groups.clusters(), size.H, size.M});
  }
  Tensor out({size.B, size.N, size.H, size.M}, q.dtype(), q.device());
  CAIRN_RUN("topk_attention", q,
            topk_attention_forward<T>(stream, operands<T>(size, q, k, v, options), groups.clusters(), topk.size(3),
                                      view(groups), topk.data<int32_t>(), mass.defined() ? mass.data<T>() : nullptr,
                                      optional_head_view<T>(rest), head_view<T>(out)));
  return out;
}

TopKAttentionGradient topk_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                              const Tensor& topk, const Tensor& mass, const AttentionOptions& options,
                                              const Tensor& dout) {
  const AttentionSize size = check_topk_attention(q, k, v, groups, topk, mass, options);
  check_operands("topk_attention", {{"q", q}, {"the gradient", dout}});
  check_shape("topk_attention", "the gradient", dout, {size.B, size.N, size.H, size.M});
  TopKAttentionGradient g{like(q), like(k), like(v), {}, {}};
  if (mass.defined()) {
    g.dmass = like(mass);
    g.drest = Tensor({size.B, groups.clusters(), size.H, size.M}, q.dtype(), q.device());
  }
  CAIRN_RUN("topk_attention", q,
            topk_attention_backward<T>(stream, operands<T>(size, q, k, v, options), groups.clusters(), topk.size(3),
                                       view(groups), topk.data<int32_t>(), mass.defined() ? mass.data<T>() : nullptr,
                                       head_view<T>(dout), head_view<T>(g.dq), head_view<T>(g.dk), head_view<T>(g.dv),
                                       mass.defined() ? g.dmass.mutable_data<T>() : nullptr,
                                       mass.defined() ? head_view<T>(g.drest) : HeadView<T>{}));
  return g;
}

}  // namespace cairn
