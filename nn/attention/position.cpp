// position-C and i-position-C: as clustered-C and i-clustered-C, but with C groups of consecutive queries instead of
// clusters of similar ones. (Reviewer 1 of the paper asks for this comparison.) Query i of n valid ones is in group
//
//   floor(i C / n),  or with shift=true, in layers of odd number,  floor(((i + ceil(n / 2C)) mod n) C / n)
//
// With the shift, neighbors that one layer separates are together in the next. C >= n: every query is its own group.
#include "nn/attention/query_groups.h"

namespace cairn {
namespace {

struct PositionGrouping : Grouping {
  bool shift = false;

  using Grouping::Grouping;

  Tensor labels(const Tensor& q, const Tensor&, const AttentionMask& mask, int64_t groups,
                const AttentionContext& context) const override {
    return position_labels({q.size(0), q.size(2), q.size(1)}, mask.query_lengths, groups,
                           shift && context.layer % 2 == 1, q.device());
  }
  double flops(const AttentionWork&) const override { return 0; }
};

std::unique_ptr<Grouping> position_grouping(SpecReader& spec) {
  auto grouping = std::make_unique<PositionGrouping>(spec.number("groups"));
  grouping->shift = spec.flag("shift", false, "odd layers move the groups by half a group");
  return grouping;
}

}  // namespace

extern const AttentionVariant position_variant{
    "position", "groups consecutive queries; the means of the groups attend to all keys",
    [](SpecReader& spec) { return make_clustered(position_grouping(spec)); }};

extern const AttentionVariant improved_position_variant{
    "i-position", "position; each query recomputes its weights for the top keys of its group",
    [](SpecReader& spec) { return make_improved_clustered(position_grouping(spec), spec); }};

}  // namespace cairn
