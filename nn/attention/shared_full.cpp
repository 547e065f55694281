// shared-full: full attention whose keys are its queries, the model that the paper compares Reformer with
// (section 4.1).
#include "nn/attention/attention.h"

namespace cairn {
namespace {

struct SharedFull : Attention {
  Variable operator()(const Variable& q, const Variable&, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    check<UsageError>(q.size(1) == v.size(1), "attention 'shared-full' has the queries for keys and so no cross ",
                      "attention: ", q.size(1), " queries, ", v.size(1), " values");
    return attention(q, q, v, options(mask, context));
  }
  double flops(const AttentionWork& work) const override { return work.attend(work.length); }
  bool shares_keys() const override { return true; }
};

}  // namespace

extern const AttentionVariant shared_full_variant{
    "shared-full", "full attention with the queries for keys",
    [](SpecReader&) -> std::unique_ptr<Attention> { return std::make_unique<SharedFull>(); }};

}  // namespace cairn
