#pragma once
// Grouping the queries (the paper's section 3.2.2), which every clustered variant does first. A way of grouping is a
// class here or in the file of its variants; clustered.cpp and improved_clustered.cpp work with any.
#include "nn/attention/attention.h"

namespace cairn {

// A way of partitioning the queries [B, N, H, D], separately in each (batch element, head). Queries beyond their length
// join no group. Carries no gradient.
class Grouping {
 public:
  explicit Grouping(int64_t groups) : groups_(groups) {}
  virtual ~Grouping() = default;

  int iterations = 0;  // updates of the centroids, if there are any

  int64_t groups() const { return groups_; }
  Groups operator()(const Tensor& q, const Tensor& k, const AttentionMask& mask, const AttentionContext& context) const;
  // If each query is its own group, why; else empty.
  std::string single_because(int64_t queries) const {
    return groups_ < queries ? "" : concat("it has a group for each of the ", queries, " queries");
  }
  // Floating-point operations for one query of one head; comparing codes needs none.
  virtual double flops(const AttentionWork& work) const = 0;

 protected:
  // int32 [B, H, N] in [0, groups), -1 beyond the lengths.
  virtual Tensor labels(const Tensor& q, const Tensor& k, const AttentionMask& mask, int64_t groups,
                        const AttentionContext& context) const = 0;

 private:
  int64_t groups_;
};

// The paper's grouping: sign hashes, then k-means in Hamming space; then `refine` steps of lloyd.h, which the paper
// does not have. One call has one set of planes; each (seed, step, layer) draws its own. Reads the number of the
// specification and the options bits, iterations, bias and refine.
std::unique_ptr<Grouping> hamming_grouping(SpecReader& spec);

// clustered-C and i-clustered-C with any grouping. i-clustered-C reads the options topk and mass_gradient.
std::unique_ptr<Attention> make_clustered(std::unique_ptr<Grouping> grouping);
std::unique_ptr<Attention> make_improved_clustered(std::unique_ptr<Grouping> grouping, SpecReader& spec);

}  // namespace cairn
