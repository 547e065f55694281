// local-W: every query against the keys with |i - j| <= W.
#include "nn/attention/patterned.h"

namespace cairn {

extern const AttentionVariant local_variant{
    "local", "every query against its neighbors, so many to either side",
    [](SpecReader& spec) -> std::unique_ptr<Attention> { return make_patterned(spec); }};

}  // namespace cairn
