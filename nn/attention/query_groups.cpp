#include "nn/attention/query_groups.h"

#include <algorithm>

#include "nn/attention/lloyd.h"

namespace cairn {

Groups Grouping::operator()(const Tensor& q, const Tensor& k, const AttentionMask& mask,
                            const AttentionContext& context) const {
  // Groups beyond the number of queries would stay empty and cost memory.
  const int64_t groups = std::min(groups_, std::max<int64_t>(1, q.size(1)));
  const Tensor chosen = context.choice(&AttentionChoices::labels, [&] { return labels(q, k, mask, groups, context); });
  return group(chosen, groups);  // a stable sort by label
}

namespace {

struct HammingGrouping : Grouping {
  int bits = 63;
  bool bias = true;     // hyperplanes have random offsets, as in the authors' code
  int refinements = 0;  // steps of lloyd.h; the paper has none

  using Grouping::Grouping;

  Tensor labels(const Tensor& q, const Tensor& k, const AttentionMask& mask, int64_t groups,
                const AttentionContext& context) const override {
    // 1. Hash: bit j of a query says on which side of hyperplane j it lies.
    const Tensor planes = context.choice(&AttentionChoices::planes, [&] {
      return random_planes(bits, q.size(3), bias, context.draw(Purpose::planes), q.device());
    });
    const Tensor codes = context.choice(&AttentionChoices::codes, [&] { return hash_codes(q, planes); });
    // 2. K-means of the codes under the Hamming distance.
    const Tensor labels =
        hamming_kmeans(codes, mask.query_lengths, groups, iterations, context.draw(Purpose::clusters));
    // 3. Refinement: clusters by what the keys see.
    return refine(q, mask.query_lengths, k, mask.key_lengths, labels, groups, refinements);
  }
  double flops(const AttentionWork& work) const override {
    // K^T K, and a product with each centroid in each step.
    const double refined = refinements > 0 ? work.head_size + refinements * double(groups()) : 0;
    return 2 * work.head_size * (double(bits) + refined);
  }
};

}  // namespace

std::unique_ptr<Grouping> hamming_grouping(SpecReader& spec) {
  auto grouping = std::make_unique<HammingGrouping>(spec.number("clusters"));
  grouping->bits = int(spec.integer("bits", 63, 1, 64, "hash bits per query"));
  grouping->iterations = int(spec.integer("iterations", 10, 0, 1000, "Lloyd iterations"));
  grouping->bias = spec.flag("bias", true, "hash with random thresholds");
  grouping->refinements =
      int(spec.integer("refine", 0, 0, 1000, "extra Lloyd iterations, with a distance weighted by the keys"));
  return grouping;
}

}  // namespace cairn
