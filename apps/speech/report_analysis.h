#pragma once
// Where a trained recognizer errs, and what the positions of a cluster have in common.
#include <cstdint>
#include <map>
#include <vector>

#include "apps/speech/model.h"

namespace cairn::speech {

// What happened to one phone of the reference.
struct PhoneErrors {
  int32_t label = 0;
  int64_t spoken = 0, right = 0, deleted = 0, inserted = 0;
  std::map<int32_t, int64_t> taken_for;  // substitutions: how often, by the answer's label

  int64_t substituted() const { return spoken - right - deleted; }
  int64_t errors() const { return substituted() + deleted + inserted; }
};
// For each label (0: nothing), most errors first.
std::vector<PhoneErrors> errors_by_phone(const std::vector<Sentence>& sequences,
                                         const std::vector<std::vector<Spike>>& answers, int64_t classes);

// Counts the positions of one head whose phone is the most frequent one of their group, for several ways to group.
struct Purity {
  int64_t positions = 0, clusters = 0;
  int64_t runs = 0, random = 0;  // groups as large as the clusters: of consecutive positions, and random ones
  int64_t whole = 0;             // a sentence is one group

  // Adds a sentence: the cluster of each position, and the phone of each frame. A position has the phone of its middle
  // frame; 0, a pause, counts as a phone.
  void add(std::vector<int32_t> labels, const std::vector<int32_t>& alignment, int64_t stride, RandomStream& draws);
};
// [layer][head], over the sentences with an alignment; empty: the attention has no clusters.
std::vector<std::vector<Purity>> purity(Model& model, const std::vector<Sentence>& sentences, const Settings& settings);

}  // namespace cairn::speech
