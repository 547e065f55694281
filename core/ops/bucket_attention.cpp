#include "core/attention_ops.h"

#include <algorithm>
#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

static BucketRounds kernel_rounds(const AttentionSize& size, const Groups& groups, BucketOptions options,
                                  Device device) {
  check<UsageError>(size.S == size.N, "bucket_attention: ", size.N, " queries and ", size.S, " keys, expected as many");
  check<UsageError>(options.chunk >= 1, "bucket_attention: chunk = ", options.chunk, ", expected at least 1");
  options.chunk = std::min(options.chunk, std::max<int64_t>(1, size.N));
  // The groups have a row for each head and round. Without rows, groups.check() finds what is wrong.
  const bool has_rows = groups.labels().defined() && size.H > 0;
  const int64_t rounds = has_rows ? std::max<int64_t>(1, groups.labels().size(1) / size.H) : 1;
  groups.check("bucket_attention", {size.B, size.H * rounds, size.N}, device);
  return {options, view(groups), size.N, groups.clusters(), rounds};
}

AttentionResult bucket_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                 const BucketOptions& buckets, const AttentionOptions& options) {
  const AttentionSize size = kernel_size(expect_attention("bucket_attention", q, k, v, options), options);
  const BucketRounds rounds = kernel_rounds(size, groups, buckets, q.device());
  AttentionResult result{Tensor({size.B, size.N, size.H, size.M}, q.dtype(), q.device()),
                         Tensor({size.B, size.H, size.N}, sums_of(q), q.device())};
  CAIRN_RUN("bucket_attention", q,
            bucket_attention_forward<T>(stream, operands<T>(size, q, k, v, options), rounds, head_view<T>(result.out),
                                        result.logsumexp.mutable_data<Accum<T>>()));
  return result;
}

AttentionGradient bucket_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                            const BucketOptions& buckets, const AttentionOptions& options,
                                            const AttentionResult& saved, const Tensor& dout) {
  const Sizes s = expect_attention("bucket_attention", q, k, v, options,
                                   {{"the saved output", saved.out, "B N H M"},
                                    of_type(sums_of(q), "the saved logsumexp", saved.logsumexp, "B H N"),
                                    {"the gradient", dout, "B N H M"}});
  const AttentionSize size = kernel_size(s, options);
  const BucketRounds rounds = kernel_rounds(size, groups, buckets, q.device());
  AttentionGradient g{empty_like(q), empty_like(k), empty_like(v)};
  CAIRN_RUN("bucket_attention", q,
            bucket_attention_backward<T>(stream, operands<T>(size, q, k, v, options), rounds, head_view<T>(saved.out),
                                         saved.logsumexp.data<Accum<T>>(), head_view<T>(dout), head_view<T>(g.dq),
                                         head_view<T>(g.dk), head_view<T>(g.dv)));
  return g;
}

}  // namespace cairn
