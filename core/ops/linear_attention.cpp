#include "core/attention_ops.h"

#include "core/dispatch.h"
#include "core/kernels/linear_attention.h"
#include "core/ops/attention_checks.h"

namespace cairn {

static AttentionSize check_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, std::initializer_list<Operand> more = {}) {
  check<UsageError>(!options.mask.allowed.defined(),
                    "linear_attention: cannot honor a boolean mask: it has sums over keys, not weights of pairs");
  check<UsageError>(options.mask.pattern.all(), "linear_attention: cannot honor a pattern of positions");
  check<UsageError>(options.scale == 0, "linear_attention: it has no scores to scale, got scale = ", options.scale);
  return kernel_size(expect_attention("linear_attention", q, k, v, options, more), options);
}

LinearAttentionResult linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options) {
  const AttentionSize size = check_linear_attention(q, k, v, options);
  LinearAttentionResult result{Tensor({size.B, size.N, size.H, size.M}, q.dtype(), q.device()),
                               Tensor({size.B, size.H, size.N}, sums_of(q), q.device())};
  CAIRN_RUN(
      "linear_attention", q,
      linear_attention_forward<T>(stream, operands<T>(visited(size, result.denominators.elements()), q, k, v, options),
                                  head_view<T>(result.out), result.denominators.mutable_data<Accum<T>>()));
  return result;
}

AttentionGradient linear_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, const LinearAttentionResult& saved,
                                            const Tensor& dout) {
  const AttentionSize size = check_linear_attention(q, k, v, options,
                                                    {{"the saved output", saved.out, "B N H M"},
                                                     sums("the saved denominators", saved.denominators, "B H N"),
                                                     {"the gradient", dout, "B N H M"}});
  AttentionGradient g{like(q), like(k), like(v)};
  CAIRN_RUN(
      "linear_attention", q,
      linear_attention_backward<T>(stream, operands<T>(visited(size, elements(g)), q, k, v, options),
                                   head_view<T>(saved.out), saved.denominators.data<Accum<T>>(), head_view<T>(dout),
                                   head_view<T>(g.dq), head_view<T>(g.dk), head_view<T>(g.dv)));
  return g;
}

}  // namespace cairn
