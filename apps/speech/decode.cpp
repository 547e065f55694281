#include "apps/speech/decode.h"

#include <algorithm>
#include <cstddef>

namespace cairn::speech {

std::vector<Spike> decode(const int32_t* best, int64_t positions) {
  std::vector<Spike> spikes;
  for (int64_t i = 0; i < positions; ++i)
    if (best[i] != 0 && (i == 0 || best[i] != best[i - 1])) spikes.push_back({best[i], i});
  return spikes;
}

std::vector<int32_t> labels_of(const std::vector<Spike>& spikes) {
  std::vector<int32_t> labels;
  for (const Spike& spike : spikes) labels.push_back(spike.label);
  return labels;
}

int64_t positions_needed(const std::vector<int32_t>& labels) {
  auto needed = int64_t(labels.size());
  for (size_t i = 1; i < labels.size(); ++i) needed += labels[i] == labels[i - 1];
  return needed;
}

std::vector<std::pair<int32_t, int32_t>> align(const std::vector<int32_t>& reference,
                                               const std::vector<int32_t>& answer) {
  const size_t rows = reference.size() + 1, columns = answer.size() + 1;
  // errors[i * columns + j]: the fewest between the first i labels of the reference and the first j of the answer
  std::vector<int64_t> errors(rows * columns);
  const auto with_pair = [&](size_t i, size_t j) {
    return errors[(i - 1) * columns + j - 1] + (reference[i - 1] != answer[j - 1]);
  };
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) {
      int64_t& fewest = errors[i * columns + j];
      fewest = int64_t(i + j);
      if (i > 0) fewest = std::min(fewest, errors[(i - 1) * columns + j] + 1);
      if (j > 0) fewest = std::min(fewest, errors[i * columns + j - 1] + 1);
      if (i > 0 && j > 0) fewest = std::min(fewest, with_pair(i, j));
    }
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (size_t i = rows - 1, j = columns - 1; i > 0 || j > 0;) {
    const int64_t fewest = errors[i * columns + j];
    const bool is_pair = i > 0 && j > 0 && with_pair(i, j) == fewest;
    const bool is_deletion = !is_pair && i > 0 && errors[(i - 1) * columns + j] + 1 == fewest;
    pairs.emplace_back(is_pair || is_deletion ? reference[i - 1] : 0, is_deletion ? 0 : answer[j - 1]);
    if (is_pair || is_deletion) --i;
    if (!is_deletion) --j;
  }
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace cairn::speech
