// position-C and i-position-C: as clustered-C and i-clustered-C, but a cluster has consecutive queries instead of
// similar ones. (Reviewer 1 of the paper asks for this comparison.) Query i of n valid ones is in cluster
//
//   floor(i C / n),  or with shift=true, in layers of odd number,  floor(((i + ceil(n / 2C)) mod n) C / n)
//
// With the shift, neighbors that one layer separates are together in the next. C >= n: every query is its own cluster.
#include "nn/attention/clustering.h"

namespace cairn {
namespace {

struct PositionClustering : Clustering {
  bool shift = false;

  using Clustering::Clustering;

  Tensor labels(const Tensor& q, const Tensor&, const AttentionMask& mask, int64_t clusters,
                const AttentionContext& context) const override {
    return position_labels({q.size(0), q.size(2), q.size(1)}, mask.query_lengths, clusters,
                           shift && context.layer % 2 == 1, q.device());
  }
  double flops(const AttentionWork&) const override { return 0; }
};

std::unique_ptr<Clustering> position_clustering(SpecReader& spec) {
  auto clustering = std::make_unique<PositionClustering>(spec.number("clusters"));
  clustering->shift = spec.flag("shift", false, "odd layers move the clusters by half a cluster");
  return clustering;
}

}  // namespace

extern const AttentionVariant position_variant{
    "position", "clusters consecutive queries; the centroids attend to all keys",
    [](SpecReader& spec) { return make_clustered(position_clustering(spec)); }};

extern const AttentionVariant improved_position_variant{
    "i-position", "position; each query recomputes its weights for the top keys of its cluster",
    [](SpecReader& spec) { return make_improved_clustered(position_clustering(spec), spec); }};

}  // namespace cairn
