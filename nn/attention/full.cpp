// full: softmax(scale Q K^T) V, every query against every key (equations 1 and 2).
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

}  // namespace

extern const AttentionVariant full_variant{
    "full", "every query against every key",
    [](SpecReader&) -> std::unique_ptr<Attention> { return std::make_unique<Full>(); }};

}  // namespace cairn
