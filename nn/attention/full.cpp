// full: softmax(scale Q K^T) V, every query against every key (equations 1 and 2). shared-full: the same with the
// queries as keys, which the paper compares with Reformer (section 4.1).
#include "nn/attention/attention.h"

namespace cairn {
namespace {

struct Full : Attention {
  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    return attention(q, k, v, options(mask, context));
  }
  double flops(const AttentionWork& work) const override { return work.attend(work.length); }
};

struct SharedFull : Full {
  Variable operator()(const Variable& q, const Variable&, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    check<UsageError>(q.size(1) == v.size(1), "attention 'shared-full' uses the queries as keys, so it has no cross ",
                      "attention: ", q.size(1), " queries, ", v.size(1), " values");
    return Full::operator()(q, q, v, mask, context);
  }
  bool shares_keys() const override { return true; }
};

}  // namespace

extern const AttentionVariant full_variant{
    "full", "every query against every key",
    [](SpecReader&) -> std::unique_ptr<Attention> { return std::make_unique<Full>(); }};

extern const AttentionVariant shared_full_variant{
    "shared-full", "full attention with the queries as keys",
    [](SpecReader&) -> std::unique_ptr<Attention> { return std::make_unique<SharedFull>(); }};

}  // namespace cairn
