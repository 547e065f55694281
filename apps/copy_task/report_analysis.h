#pragma once
// What a trained model does with a sequence: its answer, where its attention looks, and what its clusters have in
// common.
#include "apps/copy_task/model.h"
#include "nn/attention/observe.h"

namespace cairn::copy_task {

// ---- attention

// A sequence and all that the model did with it.
struct Example {
  std::vector<int32_t> input, target, answer;
  std::vector<Observation> layers;  // empty: too long for dense weights

  int64_t size() const { return int64_t(input.size()); }
  bool is_masked(int64_t i) const { return input[size_t(i)] == mask_token; }
  bool is_right(int64_t i) const { return answer[size_t(i)] == target[size_t(i)]; }
  // The same place in the other copy.
  int64_t other(int64_t i) const { return (i + size() / 2) % size(); }
};
// The first sequence of `batch`. Records no gradients.
Example run_example(Model& model, const Batch& batch, uint64_t seed);

// The mean weight that masked positions give to their place in the other copy, [layer][head]; NaN where nothing is
// masked.
std::vector<std::vector<double>> other_copy_shares(const Example& example);

// ---- clusters

// Pairs of positions of one sequence, and those of them that one head puts into one cluster.
struct PairCount {
  int64_t all = 0, together = 0;
};
// Does proximity or content decide who shares a cluster? Pairs of one head by the one thing that they have in common. A
// pair with two of them is not counted: otherwise content would pass for proximity, and the same token for the same
// place.
struct ClusterPairs {
  static constexpr int64_t reach = 4;
  PairCount none;
  PairCount near;   // at most `reach` apart
  PairCount token;  // the same input token
  PairCount place;  // the same place of the two copies
  PairCount next;   // those in one cluster here, in the heads of the next layer

  // Of one sequence: labels [n] (-1: no cluster, not counted) and input tokens [n].
  void add(const int32_t* labels, const int32_t* input, int64_t n);
  // The labels of the same sequence here and in a head of the next layer, both [n].
  void add_next(const int32_t* labels, const int32_t* labels_there, int64_t n);
};
// [layer][head], over fresh sequences. The model's attention has clusters.
std::vector<std::vector<ClusterPairs>> count_pairs(Model& model, int64_t length, int64_t sequences, uint64_t seed);
// The median over heads of the share of such pairs that are together; NaN where there are none.
double median_share(const std::vector<ClusterPairs>& heads, PairCount ClusterPairs::*kind);

}  // namespace cairn::copy_task
