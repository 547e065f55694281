#pragma once
// A text, cut into passages that overlap and that a model can read whole.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace cairn::text_search {

// What has no white space in it is cut behind so many bytes. A token has one at least, so a word has no more tokens.
inline constexpr size_t max_word_bytes = 64;
// A passage repeats at most this many tokens of the one before.
inline constexpr size_t max_overlap = 32;

struct Passage {
  size_t begin, end;        // bytes of the text
  int64_t line, last_line;  // from 1
};

// The passages of a text: at most `max_tokens` tokens each, at least 64; every word is in one of them. A passage ends,
// where it can, behind a paragraph in its second half, else behind a line there, else between words. The next one
// begins up to 32 tokens earlier (at most a quarter of the passage), at a line's beginning if there is one, else at a
// word's. `count_tokens` tells how many tokens a word has.
std::vector<Passage> cut_passages(std::string_view text, const std::function<size_t(std::string_view)>& count_tokens,
                                  size_t max_tokens);

}  // namespace cairn::text_search
