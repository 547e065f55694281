#include "core/attention_ops.h"

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const AttentionSize size = kernel_size(expect_attention("attention", q, k, v, options), options);
  AttentionResult result{Tensor({size.B, size.N, size.H, size.M}, q.dtype(), q.device()),
                         Tensor({size.B, size.H, size.N}, sums_of(q), q.device())};
  CAIRN_RUN("attention", q,
            attention_forward<T>(stream, operands<T>(size, q, k, v, options), head_view<T>(result.out),
                                 result.logsumexp.mutable_data<Accum<T>>()));
  return result;
}

AttentionGradient attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                     const AttentionResult& saved, const Tensor& dout) {
  const Sizes s = expect_attention("attention", q, k, v, options,
                                   {{"the saved output", saved.out, "B N H M"},
                                    of_type(sums_of(q), "the saved logsumexp", saved.logsumexp, "B H N"),
                                    {"the gradient", dout, "B N H M"}});
  const AttentionSize size = kernel_size(s, options);
  AttentionGradient g{empty_like(q), empty_like(k), empty_like(v)};
  CAIRN_RUN("attention", q,
            attention_backward<T>(stream, operands<T>(unless_empty(size, elements(g)), q, k, v, options),
                                  head_view<T>(saved.out), saved.logsumexp.data<Accum<T>>(), head_view<T>(dout),
                                  head_view<T>(g.dq), head_view<T>(g.dk), head_view<T>(g.dv)));
  return g;
}

}  // namespace cairn
