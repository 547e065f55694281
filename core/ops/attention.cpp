#include "core/attention_ops.h"

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const AttentionSize size = attention_size("attention", q, k, v, options);
  AttentionResult result{Tensor({size.B, size.N, size.H, size.M}, q.dtype(), q.device()),
                         Tensor({size.B, size.H, size.N}, sums_of(q), q.device())};
  CAIRN_RUN("attention", q,
            attention_forward<T>(stream, size, heads<T>(q), heads<T>(k), heads<T>(v), kernel_mask(options.mask, size),
                                 kernel_dropout(options.dropout), heads<T>(result.out),
                                 result.logsumexp.mutable_data<Accum<T>>()));
  return result;
}

AttentionGradient attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                     const AttentionResult& saved, const Tensor& dout) {
  const AttentionSize size = attention_size("attention", q, k, v, options);
  check_saved("attention", size, q, saved.out, {"the saved logsumexp", saved.logsumexp}, {"the gradient", dout});
  AttentionGradient g{like(q), like(k), like(v)};
  Workspace workspace(q.device());
  CAIRN_RUN("attention", q,
            attention_backward<T>(stream, visited(size, elements(g)), heads<T>(q), heads<T>(k), heads<T>(v),
                                  kernel_mask(options.mask, size), kernel_dropout(options.dropout), heads<T>(saved.out),
                                  saved.logsumexp.data<Accum<T>>(), heads<T>(dout), workspace, heads<T>(g.dq),
                                  heads<T>(g.dk), heads<T>(g.dv)));
  return g;
}

}  // namespace cairn
