#include "core/did_you_mean.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace cairn {

// Levenshtein's distance, one row at a time.
static size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() > 200) return best;  // the time grows with its square, and no candidate is that long
  // A candidate is near if at most 2 letters differ, or a third of the word's, but never all of them.
  size_t best_distance = std::min(std::max<size_t>(2, word.size() / 3) + 1, std::max<size_t>(1, word.size()));
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    // Of equally near candidates, prefer one with the word's first letter.
    const bool better_start = distance == best_distance && !word.empty() && !best.empty() && !candidate.empty() &&
                              candidate[0] == word[0] && best[0] != word[0];
    if (distance < best_distance || better_start) best = candidate, best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = nearest(word, candidates);
  return best.empty() || best == word ? "" : " (did you mean '" + best + "'?)";
}

}  // namespace cairn
