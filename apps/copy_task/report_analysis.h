#pragma once
// What a report says of a training: when the model learned, what its attention looks at, and what its clusters have in
// common.
#include <optional>

#include "apps/copy_task/model.h"
#include "nn/attention/observe.h"

namespace cairn::copy_task {

// ---- learning

struct LossRecord {
  int64_t step;
  double loss;
};
struct EvaluationRecord {
  int64_t step;
  Metrics evaluation;
};

// Where unmasked symbols are copied and masked ones still guessed (Metrics::on_plateau): the longest run of at least
// two such evaluations.
struct Plateau {
  int64_t first, last;               // steps
  double accuracy, masked_accuracy;  // means
  std::optional<int64_t> over;       // the evaluation after it, where masked accuracy reached 0.3
};
std::optional<Plateau> find_plateau(const std::vector<EvaluationRecord>& evaluations);

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

// Mean over queries of the summed distance of their weights, both [n, n].
double l1_distance(const std::vector<float>& a, const std::vector<float>& b, int64_t n);

// The mean weight [N, N] that masked positions of one head give to their place in the other copy; NaN where nothing is
// masked.
double to_other_copy(const float* weights, const std::vector<int32_t>& input);

// ---- clusters

// Pairs of positions of one sequence, and those of them that one head puts into one cluster.
struct PairCount {
  int64_t all = 0, together = 0;
  double share() const;  // together / all; NaN: there are none
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

// Of the numbers that are not NaN; NaN if there is none.
double median(std::vector<double> values);

// Names clusters by first appearance: 0, 1, ... Those with one member get -1.
std::vector<int> cluster_names(const int32_t* labels, int64_t n);

}  // namespace cairn::copy_task
