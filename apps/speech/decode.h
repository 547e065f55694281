#pragma once
// From the model's answers to phones, and their errors.
#include <cstdint>
#include <utility>
#include <vector>

namespace cairn::speech {

// A label, and the first position that answers it.
struct Spike {
  int32_t label = 0;
  int64_t position = 0;
};
// Greedy decoding of CTC: equal neighbors of best[0 .. positions) count once, and blanks (0) are left out.
std::vector<Spike> decode(const int32_t* best, int64_t positions);
std::vector<int32_t> labels_of(const std::vector<Spike>& spikes);

// The fewest positions that can emit these labels: one for each, and a blank between equal neighbors.
int64_t positions_needed(const std::vector<int32_t>& labels);

// Pairs of a label of the reference and one of the answer, with the fewest unequal pairs. 0 stands for none: (r, 0) is
// a deletion, (0, a) an insertion. Of several such lists, it has the most pairs of two labels at the end.
std::vector<std::pair<int32_t, int32_t>> align(const std::vector<int32_t>& reference,
                                               const std::vector<int32_t>& answer);

}  // namespace cairn::speech
