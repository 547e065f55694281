#pragma once
// A text, cut into passages that a model can read whole.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace cairn::text_search {

// What has no white space in it is cut behind so many bytes. A token has one at least, so a word has no more tokens.
inline constexpr size_t max_word_bytes = 64;

struct Passage {
  int64_t line, last_line;  // of the text, from 1
  std::string_view text;
};

// The passages of a text, one behind another: at most `max_tokens` tokens each, at least max_word_bytes; every word is
// in one of them. A passage ends, where it can, behind a paragraph in its second half, else behind a line there, else
// between words. `count_tokens` tells how many tokens a word has.
std::vector<Passage> cut_passages(std::string_view text, const std::function<size_t(std::string_view)>& count_tokens,
                                  size_t max_tokens);

}  // namespace cairn::text_search
