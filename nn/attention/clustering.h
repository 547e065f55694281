#pragma once
// Clustering the queries (the paper's section 3.2.2), which every clustered variant does first. A way of clustering is
// a class here or in the file of its variants; clustered.cpp and improved_clustered.cpp work with any.
#include "nn/attention/attention.h"

namespace cairn {

// A way of partitioning the queries [B, N, H, D], separately in each (batch element, head). Queries beyond their length
// join no cluster. Carries no gradient.
class Clustering {
 public:
  explicit Clustering(int64_t clusters) : clusters_(clusters) {}
  virtual ~Clustering() = default;

  int iterations = 0;  // updates of the centroids, if there are any

  int64_t clusters() const { return clusters_; }
  Clusters operator()(const Tensor& q, const Tensor& k, const AttentionMask& mask,
                      const AttentionContext& context) const;
  // If each query is its own cluster, why; else empty.
  std::string single_because(int64_t queries) const {
    return clusters_ < queries ? "" : concat("it has a cluster for each of the ", queries, " queries");
  }
  // Floating-point operations for one query of one head; comparing codes needs none.
  virtual double flops(const AttentionWork& work) const = 0;

 protected:
  // int32 [B, H, N] in [0, clusters), -1 beyond the lengths.
  virtual Tensor labels(const Tensor& q, const Tensor& k, const AttentionMask& mask, int64_t clusters,
                        const AttentionContext& context) const = 0;

 private:
  int64_t clusters_;
};

// The paper's clustering: sign hashes, then k-means in Hamming space; then `refine` steps of lloyd.h, which the paper
// does not have. One call has one set of planes; each (seed, step, layer) draws its own. Reads the number of the
// specification and the options bits, iterations, bias and refine.
std::unique_ptr<Clustering> hamming_clustering(SpecReader& spec);

// clustered-C and i-clustered-C with any clustering. i-clustered-C reads the options topk and mass_gradient.
std::unique_ptr<Attention> make_clustered(std::unique_ptr<Clustering> clustering);
std::unique_ptr<Attention> make_improved_clustered(std::unique_ptr<Clustering> clustering, SpecReader& spec);

}  // namespace cairn
