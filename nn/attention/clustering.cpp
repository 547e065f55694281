#include "nn/attention/clustering.h"

#include <algorithm>

#include "nn/attention/lloyd.h"

namespace cairn {

Clusters Clustering::operator()(const Tensor& q, const Tensor& k, const AttentionMask& mask,
                                const AttentionContext& context) const {
  // Clusters beyond the number of queries would stay empty and cost memory. Given labels may name later ones.
  int64_t clusters = std::min(clusters_, std::max<int64_t>(1, q.size(1)));
  if (context.choices && context.choices->labels.defined())
    for (const int32_t label : context.choices->labels.to(Device::cpu).to_vector<int32_t>())
      clusters = std::max(clusters, std::min<int64_t>(clusters_, label + int64_t(1)));
  const Tensor chosen =
      context.choice(&AttentionChoices::labels, [&] { return labels(q, k, mask, clusters, context); });
  return clusters_of(chosen, clusters);  // a stable sort by label
}

namespace {

struct HammingClustering : Clustering {
  int bits = 63;
  bool bias = true;     // hyperplanes have random offsets, as in the authors' code
  int refinements = 0;  // steps of lloyd.h; the paper has none

  using Clustering::Clustering;

  Tensor labels(const Tensor& q, const Tensor& k, const AttentionMask& mask, int64_t clusters,
                const AttentionContext& context) const override {
    // 1. Hash: bit j of a query says on which side of hyperplane j it lies.
    const Tensor planes = context.choice(&AttentionChoices::planes, [&] {
      return random_planes(bits, q.size(3), bias, context.draw(Purpose::planes), q.device());
    });
    const Tensor codes = context.choice(&AttentionChoices::codes, [&] { return hash_codes(q, planes); });
    // 2. K-means of the codes under the Hamming distance.
    const Tensor labels =
        hamming_kmeans(codes, mask.query_lengths, clusters, iterations, context.draw(Purpose::clusters));
    // 3. Refinement: clusters by what the keys see.
    return refine(q, mask.query_lengths, k, mask.key_lengths, labels, clusters, refinements);
  }
  double flops(const AttentionWork& work) const override {
    // K^T K, and a product with each centroid in each step.
    const double refined = refinements > 0 ? work.head_size + refinements * double(clusters()) : 0;
    return 2 * work.head_size * (double(bits) + refined);
  }
};

}  // namespace

std::unique_ptr<Clustering> hamming_clustering(SpecReader& spec) {
  auto clustering = std::make_unique<HammingClustering>(spec.number("clusters"));
  clustering->bits = int(spec.integer("bits", 63, 1, 64, "hash bits per query"));
  clustering->iterations = int(spec.integer("iterations", 10, 0, 1000, "Lloyd iterations"));
  clustering->bias = spec.flag("bias", true, "hash with random thresholds");
  clustering->refinements =
      int(spec.integer("refine", 0, 0, 1000, "extra Lloyd iterations, with a distance weighted by the keys"));
  return clustering;
}

}  // namespace cairn
