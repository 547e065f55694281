#pragma once
// How a trained model treats a sequence: its answer, its attention, and what the positions of a cluster have in common.
#include "apps/copy_task/model.h"
#include "nn/attention/observe.h"

namespace cairn::copy_task {

// ---- attention

// The positions that a model answers, with its answer and attention.
struct Example {
  std::vector<int32_t> input, target;
  std::vector<int32_t> answer{};
  std::vector<int32_t> memory{};      // the copy that they attend to; empty: they are both copies
  std::vector<Observation> layers{};  // empty: the sequence is too long for dense weights

  int64_t size() const { return int64_t(input.size()); }
  bool is_masked(int64_t i) const { return input[size_t(i)] == mask_token; }
  bool is_right(int64_t i) const { return answer[size_t(i)] == target[size_t(i)]; }
  // The size of a copy, and the key of the same place in the other one.
  int64_t copy_size() const { return memory.empty() ? size() / 2 : size(); }
  int64_t other(int64_t i) const { return memory.empty() ? (i + copy_size()) % size() : i; }
};
// The first sequence of `batch`. Records no gradients.
Example run_example(Model& model, const Batch& batch, uint64_t seed);

// The mean attention weight of masked positions to the same place in the other copy, [layer][head]; NaN if nothing is
// masked.
std::vector<std::vector<double>> other_copy_shares(const Example& example);

// ---- clusters

// Pairs of positions of one sequence; `together`: those that one head puts into one cluster.
struct PairCount {
  int64_t all = 0, together = 0;
};
// Do the positions of a cluster share proximity or content? Counts the pairs of one head by the one property that they
// have in common. Pairs with two of the properties are not counted, because they do not tell which one matters.
struct ClusterPairs {
  static constexpr int64_t reach = 4;
  PairCount any;  // all pairs: how often two positions share a cluster by chance
  PairCount none;
  PairCount near;   // at most `reach` positions apart
  PairCount token;  // the same input token
  PairCount place;  // the same place in the two copies
  PairCount next;   // pairs of one cluster; together: also in a head of the next layer
  // Not pairs, but masked positions; together: with a masked position of another symbol. They need different keys, and
  // plain clustered attention shows both the same.
  PairCount crowded;

  // Counts one sequence: labels [n] (-1: no cluster, not counted), input tokens and symbols [n]; `copies` of equal
  // length.
  void add(const int32_t* labels, const int32_t* input, const int32_t* target, int64_t n, int64_t copies = 2);
  // Counts `next`: the labels of one sequence in this head and in a head of the next layer, both [n].
  void add_next(const int32_t* labels, const int32_t* labels_there, int64_t n);
};
// [layer][head], over fresh sequences. Requires attention with clusters.
std::vector<std::vector<ClusterPairs>> count_pairs(Model& model, int64_t length, int64_t sequences, uint64_t seed);
// The median over heads of together / all; NaN without pairs.
double median_share(const std::vector<ClusterPairs>& heads, PairCount ClusterPairs::*kind);

}  // namespace cairn::copy_task
