#include "nn/attention/query_groups.h"

#include <algorithm>

namespace cairn {

Groups Grouping::operator()(const Tensor& q, const AttentionMask& mask, const AttentionContext& context) const {
  AttentionChoices made = context.replay ? *context.replay : AttentionChoices{};
  // More groups than queries would stay empty and cost memory. Labels from outside may count as they like.
  const int64_t groups = made.labels.defined() ? groups_ : std::min(groups_, std::max<int64_t>(1, q.size(1)));
  if (!made.labels.defined()) made.labels = labels(q, mask, groups, context, made);
  if (context.report) {
    context.report->planes = made.planes;
    context.report->codes = made.codes;
    context.report->labels = made.labels;
    context.report->clusters = groups_;
  }
  return group(made.labels, groups);  // a stable sort by label
}

namespace {

struct HammingGrouping : Grouping {
  int bits = 63;
  int iterations = 10;  // updates of the centroids
  bool bias = true;     // hyperplanes with a normal offset, as in the authors' code

  using Grouping::Grouping;

  Tensor labels(const Tensor& q, const AttentionMask& mask, int64_t groups, const AttentionContext& context,
                AttentionChoices& made) const override {
    // 1. Hash: bit j of a query says on which side of hyperplane j it lies.
    if (!made.planes.defined())
      made.planes = random_planes(bits, q.size(3), bias, context.draw(Purpose::planes), q.device());
    made.codes = hash_codes(q, made.planes);
    // 2. K-means of the codes under the Hamming distance.
    return hamming_kmeans(made.codes, mask.query_lengths, groups, int(made.planes.size(0)), iterations,
                          context.draw(Purpose::clusters));
  }
};

}  // namespace

std::unique_ptr<Grouping> hamming_grouping(SpecReader& spec) {
  auto grouping = std::make_unique<HammingGrouping>(spec.number("clusters"));
  grouping->bits = int(spec.integer("bits", 63, 1, 64, "hash bits of a query"));
  grouping->iterations = int(spec.integer("iterations", 10, 0, 1000, "Lloyd iterations"));
  grouping->bias = spec.flag("bias", true, "hash with random thresholds");
  return grouping;
}

}  // namespace cairn
