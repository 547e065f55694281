// clustered-C: queries are sorted into C clusters, attention is computed once for each cluster's centroid, and every
// member receives its result. Cost O(N C) instead of O(N^2). clustering.h clusters them.
#include "nn/attention/clustering.h"

namespace cairn {
namespace {

struct Clustered : Attention {
  std::unique_ptr<Clustering> clustering;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    lengths_only(mask, "the queries of a cluster share one row of attention");
    const Clusters clusters = (*clustering)(q, k, mask, context);                                   // section 3.2.2
    const Variable centroids = cluster_mean(q, clusters);                                           // Q^c, equation 3
    const Variable values = attention(centroids, k, v, options(mask.key_lengths_only(), context));  // equations 4 and 5
    return cluster_broadcast(values, clusters);                                                     // equation 6
  }
  double flops(const AttentionWork& work) const override {
    return clustering->flops(work) + work.attend(double(clusters()));
  }
  std::string full_because(int64_t queries, int64_t) const override { return clustering->single_because(queries); }
  int64_t clusters() const override { return clustering->clusters(); }
  int iterations() const override { return clustering->iterations; }
};

}  // namespace

std::unique_ptr<Attention> make_clustered(std::unique_ptr<Clustering> clustering) {
  auto variant = std::make_unique<Clustered>();
  variant->clustering = std::move(clustering);
  return variant;
}

extern const AttentionVariant clustered_variant{
    "clustered", "clusters the queries by hash; the centroids attend to all keys",
    [](SpecReader& spec) { return make_clustered(hamming_clustering(spec)); }};

}  // namespace cairn
