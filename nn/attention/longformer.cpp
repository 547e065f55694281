// longformer-W: local-W, and the first `global` positions attend to all and are attended to by all (Longformer, Beltagy
// et al. 2020, with one set of projections).
#include <limits>

#include "nn/attention/patterned.h"

namespace cairn {

extern const AttentionVariant longformer_variant{
    "longformer", "local, with first positions that see all and that all see",
    [](SpecReader& spec) -> std::unique_ptr<Attention> {
      auto variant = make_patterned(spec);
      variant->pattern.global = int32_t(spec.integer("global", 1, 0, std::numeric_limits<int32_t>::max(),
                                                     "how many positions are global; 0: as local"));
      return variant;
    }};

}  // namespace cairn
