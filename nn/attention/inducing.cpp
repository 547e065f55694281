// inducing-I: the keys and values are replaced by I learned points' attention to them (Set Transformer, Lee et al.
// 2019), and every query attends to these:
//
//   K' = softmax(scale P K^T) K,  V' = softmax(scale P K^T) V,  out = softmax(scale Q K'^T) V'
//
// P [H, I, D] is learned: one set of points per head. Cost (N + S) I instead of N S.
//
// Dropout acts on the queries' weights over the points, not on the points' weights over the keys.
#include <algorithm>
#include <limits>

#include "nn/attention/attention.h"

namespace cairn {
namespace {

struct Inducing : Attention {
  int64_t count = 0;
  Variable points;  // [H, I, D]

  void fields(Fields& f) override { f("points", points); }
  // Standard normal, like the keys that the points are compared with.
  void initialize(int64_t heads, int64_t head_size, Generator& generator) override {
    check<UsageError>(count <= std::numeric_limits<int32_t>::max() / std::max<int64_t>(1, heads), "attention '", spec(),
                      "': ", heads, " heads have more than 2147483647 points");
    points = normal_parameter({heads, count, head_size}, generator);
  }

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    lengths_only(mask, "queries see the keys only through the points");
    const Variable p = points_for(q);
    const AttentionOptions over_keys{mask.key_lengths_only(), {}, scale()};
    return attention(q, attention(p, k, k, over_keys), attention(p, k, v, over_keys),
                     options({.query_lengths = mask.query_lengths}, context));
  }
  double flops(const AttentionWork& work) const override { return 3 * work.attend(double(count)); }

  // The points as queries of every batch element, [B, I, H, D].
  Variable points_for(const Variable& q) const {
    check(points.defined(), "attention '", spec(), "' has no points yet: initialize() draws them");
    check(q.shape().rank() == 4, "attention '", spec(), "': expected q [B, N, H, D], got ", q.shape());
    const int64_t B = q.size(0), H = q.size(2), D = q.size(3);
    check(points.shape() == Shape{H, count, D}, "attention '", spec(), "': points of shape ", points.shape(),
          " do not fit q of shape ", q.shape(), ": expected [", H, ", ", count, ", ", D, "]");
    return broadcast_to(permute(cast(points, q.dtype()), {1, 0, 2}), {B, count, H, D});
  }
};

}  // namespace

extern const AttentionVariant inducing_variant{
    "inducing", "learned points attend to the keys, and every query attends to the points",
    [](SpecReader& spec) -> std::unique_ptr<Attention> {
      auto variant = std::make_unique<Inducing>();
      variant->count = spec.number("points");
      return variant;
    }};

}  // namespace cairn
