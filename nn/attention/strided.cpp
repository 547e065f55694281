// strided-W: every query against the keys with |i - j| <= W or (i - j) mod W = 0 (Sparse Transformer, Child et al.
// 2019, in one head and in both directions).
#include "nn/attention/patterned.h"

namespace cairn {

extern const AttentionVariant strided_variant{"strided", "local, and the keys at multiples of that distance",
                                              [](SpecReader& spec) -> std::unique_ptr<Attention> {
                                                auto variant = make_patterned(spec);
                                                variant->pattern.stride = variant->pattern.window;
                                                return variant;
                                              }};

}  // namespace cairn
