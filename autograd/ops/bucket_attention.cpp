#include "autograd/ops.h"

namespace cairn {

// Softmax over (round, key) pairs, so its gradient is that of attention in which a key that a query sees in several
// rounds stands several times. A query that sees itself alone: out_i = v_i, dv_i += g_i.
Variable bucket_attention(const Variable& q, const Variable& k, const Variable& v, const Groups& groups,
                          const BucketOptions& buckets, const AttentionOptions& options) {
  const AttentionResult kept = bucket_attention(q.value(), k.value(), v.value(), groups, buckets, options);
  return record(
      "bucket_attention", kept.out, {q, k, v},
      [q = Saved(q.value()), k = Saved(k.value()), v = Saved(v.value()), out = Saved(kept.out),
       unchanged = Unchanged(options), groups, buckets, options,
       logsumexp = kept.logsumexp](const Tensor& g) -> Gradients {
        unchanged();
        auto [dq, dk, dv] = bucket_attention_backward(q(), k(), v(), groups, buckets, options, {out(), logsumexp}, g);
        return {dq, dk, dv};
      });
}

}  // namespace cairn
