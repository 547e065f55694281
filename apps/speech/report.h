#pragma once
// A part of the report (write_report), in a header for its test: do clusters follow phones?
#include <cstdint>
#include <vector>

namespace cairn::speech {

// Counts the positions of a layer's heads whose phone is the most frequent one of their cluster.
struct Purity {
  int64_t positions = 0, clusters = 0;
  int64_t runs = 0;  // the same of runs of consecutive positions, as long as the clusters are large

  // Adds a sentence: the cluster of each position in a head, and the phone of each frame. A position has the phone of
  // its middle frame; 0, a pause, counts as a phone.
  void add(std::vector<int32_t> labels, const std::vector<int32_t>& alignment, int64_t stride);
};

}  // namespace cairn::speech
