#pragma once
// Where a trained recognizer errs, and what the positions of a cluster have in common.
#include <cstdint>
#include <vector>

#include "apps/speech/model.h"

namespace cairn::speech {

// How often the answers have the label `got` where the references have `expected`: [expected][got]. 0: no label.
std::vector<std::vector<int64_t>> confusions(const std::vector<Sentence>& sequences,
                                             const std::vector<std::vector<Spike>>& answers, int64_t classes);

// Counts the positions of one head whose phone is the most frequent one of their group.
struct Purity {
  int64_t positions = 0, clusters = 0;
  int64_t runs = 0;  // groups of consecutive positions, as large as the clusters

  // Adds a sentence: the cluster of each position, and the phone of each frame. A position has the phone of its middle
  // frame; 0, a pause, counts as a phone.
  void add(std::vector<int32_t> labels, const std::vector<int32_t>& alignment, int64_t stride);
};
// [layer][head], over the sentences with an alignment; empty: the attention has no clusters.
std::vector<std::vector<Purity>> purity(Model& model, const std::vector<Sentence>& sentences, const Settings& settings);

}  // namespace cairn::speech
