#pragma once
// Cuts a text into passages that are short enough for a model.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace cairn::text_search {

// A longer word is cut after this many bytes, or fewer where passages are shorter. A token has at least one byte, so no
// word has more tokens than that.
inline constexpr size_t max_word_bytes = 64;

struct Passage {
  int64_t line, last_line;  // of the text, from 1
  std::string_view text;
};

// The consecutive passages of a text. Each has at most `max_tokens` tokens (at least 1), and every word is in one of
// them. A passage ends after the last paragraph that ends in its second half, else after the last line that
// does, else between words. `count_tokens` returns the number of tokens of a word.
std::vector<Passage> cut_passages(std::string_view text, const std::function<size_t(std::string_view)>& count_tokens,
                                  size_t max_tokens);

}  // namespace cairn::text_search
