#pragma once
// Suggestions for unknown names.
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// "a, b, c".
std::string joined(const std::vector<std::string>& words);

// The candidate nearest to `word` in edit distance; empty if none is near enough to be meant, or for very long words.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// The end of a message about an unknown name: " (did you mean 'x'?)" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace cairn
