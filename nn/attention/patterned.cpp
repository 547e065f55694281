// local-W, longformer-W and strided-W: which keys a query sees depends on positions alone. The kernels skip tiles in
// which no query sees a key.
//
//   local-W       the keys with |i - j| <= W
//   longformer-W  the same, and the first `global` positions see all and are seen by all (Longformer, Beltagy et al.
//                 2020; here with one set of projections)
//   strided-W     the keys with |i - j| <= W or (i - j) mod W = 0 (Sparse Transformer, Child et al. 2019; here in one
//                 head, and in both directions)
#include <limits>

#include "nn/attention/attention.h"

namespace cairn {
namespace {

struct Patterned : Attention {
  Pattern pattern;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    check<UsageError>(q.size(1) == k.size(1), "attention '", spec(), "' depends on the positions of one sequence, ",
                      "so it has no cross attention: ", q.size(1), " queries, ", k.size(1), " keys");
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

std::unique_ptr<Patterned> make_local(SpecReader& spec) {
  auto variant = std::make_unique<Patterned>();
  variant->pattern.window = int32_t(spec.number("neighbors"));
  return variant;
}

}  // namespace

extern const AttentionVariant local_variant{
    "local", "every query against its neighbors, this many on either side",
    [](SpecReader& spec) -> std::unique_ptr<Attention> { return make_local(spec); }};

extern const AttentionVariant longformer_variant{
    "longformer", "local; the first positions also see all and are seen by all",
    [](SpecReader& spec) -> std::unique_ptr<Attention> {
      auto variant = make_local(spec);
      variant->pattern.global = int32_t(
          spec.integer("global", 1, 0, std::numeric_limits<int32_t>::max(), "number of global positions; 0: as local"));
      return variant;
    }};

extern const AttentionVariant strided_variant{"strided", "local, plus the keys at multiples of this distance",
                                              [](SpecReader& spec) -> std::unique_ptr<Attention> {
                                                auto variant = make_local(spec);
                                                variant->pattern.stride = variant->pattern.window;
                                                return variant;
                                              }};

}  // namespace cairn
