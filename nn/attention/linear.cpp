// linear: the weight of key j for query i is phi(q_i) . phi(k_j) over its sum over keys, with phi(x) = elu(x) + 1
// (Katharopoulos et al. 2020). A product instead of an exponential, so that the keys and values are summed up once for
// all queries, at a cost of N D M.
//
// Deviation: dropout. Single weights do not exist to be dropped, so a key is dropped for all queries of a head at once:
// its value leaves the numerator, while the values of other keys are scaled by 1 / (1 - p).
#include "nn/attention/attention.h"

namespace cairn {
namespace {

struct LinearAttention : Attention {
  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    lengths_or_causal_only(mask, "it has sums over keys, not weights of single pairs");
    return linear_attention(q, k, v, {mask, context.weights_dropout(Purpose::attention_dropout)});
  }
  double flops(const AttentionWork& work) const override { return work.attend(work.head_size); }
};

}  // namespace

extern const AttentionVariant linear_variant{
    "linear", "weights phi(q) . phi(k) with phi(x) = elu(x) + 1, in linear time; without the option scale",
    [](SpecReader& spec) -> std::unique_ptr<Attention> {
      spec.without("scale", "the weights of linear attention are not made of scores");
      return std::make_unique<LinearAttention>();
    }};

}  // namespace cairn
