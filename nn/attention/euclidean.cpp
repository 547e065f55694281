// euclidean-C and i-euclidean-C: as clustered-C and i-clustered-C, but Lloyd's algorithm clusters the queries
// themselves, not their sign hashes, under the Euclidean distance. (Reviewer 3 of the paper asks for this comparison.)
// It starts from the first query of each of C clusters of consecutive queries. Cost O(N C D) per iteration.
#include "autograd/ops.h"
#include "nn/attention/clustering.h"
#include "nn/attention/lloyd.h"

namespace cairn {
namespace {

// Labels int32 [B, H, N]: the first query of each cluster of consecutive queries has the cluster's number, all others
// -1.
Tensor first_of_clusters(const Shape& shape, const Tensor& lengths, int64_t clusters, Device device) {
  const Tensor label = position_labels(shape, lengths, clusters, false, device);
  const Tensor none = Tensor::full({}, -1, DType::int32, device);
  const Tensor before = concat({broadcast_to(none, shape.with(2, 1)), slice(label, 2, 0, shape[2] - 1)}, 2);
  return where(compare(Compare::equal, label, before), none, label);
}

Tensor euclidean_kmeans(const Tensor& q, const Tensor& lengths, int64_t clusters, int iterations) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2);
  if (clusters >= N) return position_labels({B, H, N}, lengths, clusters, false, q.device());
  return lloyd(q, lengths, first_of_clusters({B, H, N}, lengths, clusters, q.device()), clusters, iterations + 1);
}

struct EuclideanClustering : Clustering {
  using Clustering::Clustering;

  Tensor labels(const Tensor& q, const Tensor&, const AttentionMask& mask, int64_t clusters,
                const AttentionContext&) const override {
    return euclidean_kmeans(q, mask.query_lengths, clusters, iterations);
  }
  double flops(const AttentionWork& work) const override {
    return 2 * work.head_size * double(clusters()) * (iterations + 1);
  }
};

std::unique_ptr<Clustering> euclidean_clustering(SpecReader& spec) {
  auto clustering = std::make_unique<EuclideanClustering>(spec.number("clusters"));
  clustering->iterations = int(spec.integer("iterations", 10, 0, 1000, "Lloyd iterations"));
  return clustering;
}

}  // namespace

extern const AttentionVariant euclidean_variant{
    "euclidean", "clustered, with clusters by Euclidean distance",
    [](SpecReader& spec) { return make_clustered(euclidean_clustering(spec)); }};

extern const AttentionVariant improved_euclidean_variant{
    "i-euclidean", "euclidean; each query recomputes its weights for the top keys of its cluster",
    [](SpecReader& spec) { return make_improved_clustered(euclidean_clustering(spec), spec); }};

}  // namespace cairn
