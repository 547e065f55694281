#pragma once
// Grouping the queries (the paper's section 3.2.2): what every clustered variant does first. A way of grouping is a
// class here or in the file of its variants; clustered.cpp and improved_clustered.cpp take any.
#include "nn/attention/attention.h"

namespace cairn {

// A way of partitioning the queries [B, N, H, D], each (batch element, head) for itself; queries beyond their length
// join no group. Carries no gradient.
class Grouping {
 public:
  explicit Grouping(int64_t groups) : groups_(groups) {}
  virtual ~Grouping() = default;

  int64_t groups() const { return groups_; }
  // Labels to replay win; whatever was chosen is reported: "labels" int32 [B, H, N], -1 for none, and the number
  // "clusters" as specified.
  Groups operator()(const Tensor& q, const Tensor& k, const AttentionMask& mask, const AttentionContext& context) const;
  // Why each query is a group of its own, where it is.
  std::string single_because(int64_t queries) const {
    return groups_ < queries ? "" : concat("it has a group for each of the ", queries, " queries");
  }
  // Floating-point operations for one query of one head; comparing codes needs none.
  virtual double flops(const AttentionWork& work) const = 0;

 protected:
  // int32 [B, H, N] in [0, groups), -1 beyond the lengths. Reports what leads to the labels.
  virtual Tensor labels(const Tensor& q, const Tensor& k, const AttentionMask& mask, int64_t groups,
                        const AttentionContext& context) const = 0;

 private:
  int64_t groups_;
};

// The paper's: sign hashes, then k-means in Hamming space. The planes are the same for all of one call and fresh at
// each (seed, step, layer). Then come `refine` steps of lloyd.h, which the paper does not have. From a specification:
// the number and the options bits, iterations, bias, refine.
std::unique_ptr<Grouping> hamming_grouping(SpecReader& spec);

// clustered-C and i-clustered-C with any grouping. The second reads the options topk and mass_gradient.
std::unique_ptr<Attention> make_clustered(std::unique_ptr<Grouping> grouping);
std::unique_ptr<Attention> make_improved_clustered(std::unique_ptr<Grouping> grouping, SpecReader& spec);

}  // namespace cairn
