#include "core/attention_ops.h"

#include <algorithm>
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/bucket_attention.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Groups group_buckets(const Tensor& buckets, int64_t count) {
  const Sizes s = expect("group_buckets", {of_type(DType::int32, "buckets", buckets, "B H R N")});
  return group(buckets.reshape({s['B'], s['H'] * s['R'], s['N']}), count);
}

static BucketRounds kernel_rounds(const AttentionSize& size, const Groups& groups, const BucketOptions& options,
                                  Device device) {
  const auto [rounds, first, end, chunk, bucket_mask, deduplicate] = options;
  check<UsageError>(size.S == size.N, "bucket_attention: ", size.N, " queries and ", size.S, " keys, expected as many");
  check<UsageError>(rounds >= 1 && first >= 0 && first < end && end <= rounds, "bucket_attention: rounds ", first,
                    " up to ", end, " of ", rounds, ", expected one or more of them");
  check<UsageError>(chunk >= 1, "bucket_attention: chunk = ", chunk, ", expected at least 1");
  const Shape rows{size.B, size.H, rounds, size.N};  // throws if H * rounds overflows
  groups.check("bucket_attention", {size.B, size.H * rounds, size.N}, device);
  const int64_t longest = std::min(chunk, std::max<int64_t>(1, size.N));
  return {view(groups), size.N, groups.clusters(), rounds, first, end, longest, bucket_mask, deduplicate};
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
