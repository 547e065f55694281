#pragma once
// Suggestions for names that are not known.
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// The candidate nearest to `word` in edit distance, if it is near enough to be what was meant; else empty.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// " (did you mean 'x'?)" or nothing: the end of a message about an unknown name. Looked up when it is written.
struct DidYouMean {
  std::string_view word;
  const std::vector<std::string>& candidates;
};
inline DidYouMean did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  return {word, candidates};
}
void append(std::string& text, const DidYouMean& suggestion);

}  // namespace cairn
