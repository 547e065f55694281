// euclidean-C and i-euclidean-C: the queries themselves are clustered, by Lloyd's algorithm under the Euclidean
// distance, instead of their sign hashes (what reviewer 3 asks to compare with); the rest is clustered-C and
// i-clustered-C. Cost O(N C D) an iteration.
#include "nn/attention/query_groups.h"

namespace cairn {
namespace {

struct EuclideanGrouping : Grouping {
  int iterations = 10;  // updates of the centroids

  using Grouping::Grouping;

  Tensor labels(const Tensor& q, const AttentionMask& mask, int64_t groups,
                const AttentionContext& context) const override {
    return euclidean_kmeans(q, mask.query_lengths, groups, iterations, context.draw(Purpose::clusters));
  }
  double flops(const AttentionWork& work) const override {
    return 2 * work.head_size * double(groups()) * (iterations + 1);
  }
};

std::unique_ptr<Grouping> euclidean_grouping(SpecReader& spec) {
  auto grouping = std::make_unique<EuclideanGrouping>(spec.number("clusters"));
  grouping->iterations = int(spec.integer("iterations", 10, 0, 1000, "Lloyd iterations"));
  return grouping;
}

}  // namespace

extern const AttentionVariant euclidean_variant{
    "euclidean", "clustered attention, by the queries' Euclidean distance",
    [](SpecReader& spec) { return make_clustered(euclidean_grouping(spec)); }};

extern const AttentionVariant improved_euclidean_variant{
    "i-euclidean", "euclidean attention, exact on each cluster's top keys",
    [](SpecReader& spec) { return make_improved_clustered(euclidean_grouping(spec), spec); }};

}  // namespace cairn
