// local-W, longformer-W and strided-W: which keys a query sees depends on positions alone.
//
//   local-W       the keys with |i - j| <= W; with `dilation` d, those at the distances 0, d, 2 d, ..., W d (Beltagy et
//                 al. 2020)
//   longformer-W  the keys with |i - j| <= W; the first `global` positions see all and are seen by all (Beltagy et al.
//                 2020, Longformer; here with one set of projections)
//   strided-W     the keys with |i - j| <= W or (i - j) mod W = 0 (Sparse Transformer, Child et al. 2019; here in one
//                 head, and in both directions)
//
// The kernels skip tiles in which no query sees a key. But keys at the distances W, 2 W, ... lie in nearly every tile.
// So each residue class of positions becomes a sequence of its own, in which these keys are neighbors
// (autograd/ops/joined_attention.cpp). strided-W then scores 2 W N + N^2 / W pairs: with W = sqrt(N), 3 N sqrt(N).
#include <limits>

#include "nn/attention/attention.h"

namespace cairn {
namespace {

constexpr int32_t largest = std::numeric_limits<int32_t>::max();

struct Patterned : Attention {
  int32_t window = 0, global = 0;
  int64_t dilation = 1;
  bool strided = false;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    check<UsageError>(q.size(1) == k.size(1), "attention '", spec(), "' depends on the positions of one sequence, ",
                      "so it has no cross attention: ", q.size(1), " queries, ", k.size(1), " keys");
    check<UsageError>(mask.pattern.all(), "attention '", spec(), "' cannot honor a pattern besides its own");
    const auto set = [&](const Pattern& pattern, int64_t classes, Purpose purpose) {
      KeySet keys{q, k, v, options(mask, context, purpose), classes};
      keys.options.mask.pattern = pattern;
      return keys;
    };
    if (!strided) return joined_attention({set({window, global}, dilation, Purpose::attention_dropout)});
    // The residue class contains the position itself and those at distance W, so the window leaves them out.
    return joined_attention(
        {set({window - 1, 0, false}, 1, Purpose::attention_dropout), set({}, window, Purpose::class_dropout)});
  }
  double flops(const AttentionWork& work) const override {
    return work.attend(2 * (double(window) + double(global)) + 1 + (strided ? work.length / double(window) : 0));
  }
  std::string full_because(int64_t queries, int64_t) const override {
    const bool wide = int64_t(window) + global + 1 >= queries && (dilation == 1 || queries <= 1);
    return wide || (strided && window == 1) ? concat("each of the ", queries, " positions sees all") : "";
  }
};

std::unique_ptr<Patterned> make(SpecReader& spec) {
  auto variant = std::make_unique<Patterned>();
  variant->window = int32_t(spec.number("neighbors"));
  return variant;
}

}  // namespace

extern const AttentionVariant local_variant{"local", "every query against its neighbors, this many on either side",
                                            [](SpecReader& spec) -> std::unique_ptr<Attention> {
                                              auto variant = make(spec);
                                              variant->dilation = spec.integer("dilation", 1, 1, largest,
                                                                               "distance from a neighbor to the next");
                                              return variant;
                                            }};

extern const AttentionVariant longformer_variant{
    "longformer", "local; the first positions also see all and are seen by all",
    [](SpecReader& spec) -> std::unique_ptr<Attention> {
      auto variant = make(spec);
      variant->global = int32_t(spec.integer("global", 1, 0, largest, "number of global positions; 0: as local"));
      return variant;
    }};

extern const AttentionVariant strided_variant{"strided", "local, plus the keys at multiples of this distance",
                                              [](SpecReader& spec) -> std::unique_ptr<Attention> {
                                                auto variant = make(spec);
                                                variant->strided = true;
                                                return variant;
                                              }};

}  // namespace cairn
