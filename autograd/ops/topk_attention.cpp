#include "core/kernels/topk_attention.h"

#include "autograd/ops/improved_clustered.h"
#include "autograd/ops/saved_options.h"
#include "core/ops/attention_checks.h"

namespace cairn {

// The sizes of q, k, v, clusters, topk [B, H, C, T], mass [B, H, C] and of `more`.
static Sizes expect_topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Clusters& clusters,
                                   const Tensor& topk, const Tensor& mass, const AttentionOptions& options,
                                   const Operand& more) {
  const Sizes s =
      expect_attention("topk_attention", q, k, v, options,
                       {of_type(DType::int32, "topk", topk, "B H C T"), optional({"mass", mass, "B H C"}), more});
  clusters.check("topk_attention", {s['B'], s['H'], s['N']}, q.device());
  check(s['C'] == clusters.count(), "topk_attention: topk is of ", s['C'], " clusters, expected ", clusters.count());
  check_top_keys("topk_attention", topk, s['S']);
  return s;
}

// out_i = m_j (a_i V_T) + B_j with a_i = softmax over T_j of scale q_i . K_l.
Tensor topk_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Clusters& clusters,
                              const Tensor& topk, const Tensor& mass, const Tensor& rest,
                              const AttentionOptions& options, Tensor* logsumexp) {
  const Sizes s = expect_topk_attention(q, k, v, clusters, topk, mass, options, optional({"rest", rest, "B C H M"}));
  check(mass.defined() == rest.defined(), "topk_attention: ", mass.defined() ? "rest" : "mass",
        " was never given a value");
  Tensor out({s['B'], s['N'], s['H'], s['M']}, q.dtype(), q.device());
  if (logsumexp) *logsumexp = Tensor({s['B'], s['H'], s['N']}, sums_of(q), q.device());
  CAIRN_RUN("topk_attention", q,
            topk_attention_forward<T>(stream, operands<T>(kernel_size(s, options), q, k, v, options), s['C'], s['T'],
                                      view(clusters), topk.data<int32_t>(), data_or_null<T>(mass),
                                      rest.defined() ? head_view<T>(rest) : HeadView<const T>{}, head_view<T>(out),
                                      logsumexp ? logsumexp->mutable_data<Accum<T>>() : nullptr));
  return out;
}

// With g_i the gradient of out_i:
//   dm_j = sum_i g_i . (a_i V_T),  dB_j = sum_i g_i,  and attention over T_j with the gradient m_j g_i.
// The gradient of logsumexp_i adds a_i to dS_i.
TopKAttentionGradient topk_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Clusters& clusters, const Tensor& topk, const Tensor& mass,
                                              const AttentionOptions& options, const Tensor& dout,
                                              const Tensor& dlogsumexp) {
  const Sizes s = expect_topk_attention(q, k, v, clusters, topk, mass, options, {"the gradient", dout, "B N H M"});
  TopKAttentionGradient g{empty_like(q), empty_like(k), empty_like(v), {}, {}};
  if (mass.defined()) {
    g.dmass = empty_like(mass);
    g.drest = Tensor({s['B'], s['C'], s['H'], s['M']}, q.dtype(), q.device());
  }
  CAIRN_RUN("topk_attention", q,
            topk_attention_backward<T>(stream, operands<T>(kernel_size(s, options), q, k, v, options), s['C'], s['T'],
                                       view(clusters), topk.data<int32_t>(), data_or_null<T>(mass), head_view<T>(dout),
                                       data_or_null<Accum<T>>(dlogsumexp), head_view<T>(g.dq), head_view<T>(g.dk),
                                       head_view<T>(g.dv), mass.defined() ? g.dmass.mutable_data<T>() : nullptr,
                                       mass.defined() ? head_view<T>(g.drest) : HeadView<T>{}));
  return g;
}

Variable topk_attention(const Variable& q, const Variable& k, const Variable& v, const Clusters& clusters,
                        const Tensor& topk, const AttentionOptions& options) {
  const Tensor out = topk_attention_forward(q, k, v, clusters, topk, {}, {}, options);
  return record("topk_attention", out, {q, k, v},
                [q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v), clusters, topk = SavedTensor(topk),
                 options = saved_options(options)](const Tensor& g) -> Gradients {
                  const auto d = topk_attention_backward(q(), k(), v(), clusters, topk(), {}, options(), g);
                  return {d.dq, d.dk, d.dv};
                });
}

}  // namespace cairn
