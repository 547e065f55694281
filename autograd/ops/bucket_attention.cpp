#include "autograd/ops.h"
#include "autograd/ops/saved_options.h"

namespace cairn {

// Softmax over (round, key) pairs. Its gradient is that of attention where a key of several rounds occurs several
// times. A query that sees only itself: out_i = v_i, dv_i += g_i.
Variable bucket_attention(const Variable& q, const Variable& k, const Variable& v, const Groups& groups,
                          const BucketOptions& buckets, const AttentionOptions& options) {
  const AttentionResult saved = bucket_attention(q.value(), k.value(), v.value(), groups, buckets, options);
  return record(
      "bucket_attention", saved.out, {q, k, v},
      [q = SavedTensor(q.value()), k = SavedTensor(k.value()), v = SavedTensor(v.value()), out = SavedTensor(saved.out),
       groups, buckets, options = saved_options(options), logsumexp = saved.logsumexp](const Tensor& g) -> Gradients {
        auto [dq, dk, dv] = bucket_attention_backward(q(), k(), v(), groups, buckets, options(), {out(), logsumexp}, g);
        return {dq, dk, dv};
      });
}

}  // namespace cairn
