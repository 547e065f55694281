// oracle-top-k: every query attends to the k keys with its largest scores, and to nothing else (section 4.1). It is the
// top-k part of i-clustered, where every query is its own cluster, the mass is 1 and the rest is 0.
#include <algorithm>

#include "nn/attention/attention.h"
#include "nn/attention/layout.h"

namespace cairn {
namespace {

// Query i in cluster i.
Clusters singletons(const Tensor& q) {
  const int64_t N = q.size(1);
  return clusters_of(position_labels({q.size(0), q.size(2), N}, {}, std::max<int64_t>(1, N), false, q.device()), N);
}

struct OracleTop : Attention {
  int64_t top = 32;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    const AttentionOptions all = options(mask, context);
    AttentionOptions choice = all;
    choice.dropout = {};
    const int64_t keys = std::clamp<int64_t>(top, 1, std::max<int64_t>(1, k.size(1)));
    const Tensor chosen = context.choice(&AttentionChoices::topk, [&] { return top_keys(q, k, keys, choice); });
    return topk_attention(q, k, v, singletons(q), chosen, all);
  }
  double flops(const AttentionWork& work) const override {
    return 2 * work.length * work.head_size + work.attend(double(top));
  }
  std::string full_because(int64_t, int64_t keys) const override {
    return top < keys ? "" : concat("its ", top, " top keys are all ", keys, " keys");
  }
  int64_t topk() const override { return top; }
};

}  // namespace

extern const AttentionVariant oracle_top_variant{"oracle-top", "every query against the keys with its largest scores",
                                                 [](SpecReader& spec) -> std::unique_ptr<Attention> {
                                                   auto variant = std::make_unique<OracleTop>();
                                                   variant->top = spec.number("keys");
                                                   return variant;
                                                 }};

}  // namespace cairn
