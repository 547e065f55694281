#pragma once
// What local, longformer and strided share: attention in which a query sees keys by their positions alone. The kernels
// leave out the tiles in which it sees none.
#include "nn/attention/attention.h"

namespace cairn {

struct Patterned : Attention {
  Pattern pattern;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    check<UsageError>(q.size(1) == k.size(1), "attention '", spec(), "' goes by the positions of one sequence and has ",
                      "no cross attention: ", q.size(1), " queries, ", k.size(1), " keys");
    check<UsageError>(mask.pattern.all(), "attention '", spec(), "' cannot honor a pattern besides its own");
    AttentionOptions all = options(mask, context);
    all.mask.pattern = pattern;
    return attention(q, k, v, all);
  }
  double flops(const AttentionWork& work) const override {
    const double strided = pattern.stride > 0 ? work.length / double(pattern.stride) : 0;
    return work.attend(2 * (double(pattern.window) + double(pattern.global)) + 1 + strided);
  }
  std::string full_because(int64_t queries, int64_t) const override {
    const bool sees_all = int64_t(pattern.window) + pattern.global + 1 >= queries || pattern.stride == 1;
    return sees_all ? concat("each of the ", queries, " positions sees all") : "";
  }
};

// Error: see SpecReader::number().
inline std::unique_ptr<Patterned> make_patterned(SpecReader& spec) {
  auto variant = std::make_unique<Patterned>();
  variant->pattern.window = int32_t(spec.number("neighbors"));
  return variant;
}

}  // namespace cairn
