#include "apps/text_search/passages.h"

#include <algorithm>

#include "core/error.h"

namespace cairn::text_search {
namespace {

constexpr const char* white_space = " \t\n\v\f\r";

// What stands in front of a word.
enum class Gap { none, space, line, paragraph };

struct Word {
  size_t begin, end;
  int64_t line;
  Gap gap;
  size_t tokens_before;  // of all words before it
};

// The words of a text, and an empty one behind the last.
std::vector<Word> words_of(std::string_view text, const std::function<size_t(std::string_view)>& count_tokens) {
  std::vector<Word> words;
  size_t tokens = 0, reached = 0;
  int64_t line = 1;
  while (true) {
    const size_t begin = std::min(text.find_first_not_of(white_space, reached), text.size());
    size_t end = std::min({text.find_first_of(white_space, begin), text.size(), begin + max_word_bytes});
    while (end < text.size() && end > begin + 1 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
    const std::string_view between = text.substr(reached, begin - reached);
    const auto lines = std::count(between.begin(), between.end(), '\n');
    line += lines;
    const Gap gap = lines > 1 ? Gap::paragraph : lines == 1 ? Gap::line : between.empty() ? Gap::none : Gap::space;
    words.push_back({begin, end, line, gap, tokens});
    if (begin == text.size()) return words;
    tokens += count_tokens(text.substr(begin, end - begin));
    reached = end;
  }
}

size_t tokens_in(const std::vector<Word>& words, size_t begin, size_t end) {
  return words[end].tokens_before - words[begin].tokens_before;
}

// Where the passage from word `first` on ends best: behind word `reached`, and with at most `max_tokens`.
size_t best_end(const std::vector<Word>& words, size_t first, size_t reached, size_t max_tokens) {
  const size_t count = words.size() - 1;
  size_t room = reached + 1;
  while (room < count && tokens_in(words, first, room + 1) <= max_tokens) ++room;
  if (room == count) return room;
  for (const Gap wanted : {Gap::paragraph, Gap::line, Gap::space})
    for (size_t end = room; end > std::max(reached, first + (room - first) / 2); --end)
      if (words[end].gap >= wanted) return end;
  return room;
}

// Where the passage behind words `first` to `end` begins. No word is in more than two passages.
size_t next_begin(const std::vector<Word>& words, size_t first, size_t reached, size_t end) {
  const size_t most = std::min(max_overlap, tokens_in(words, first, end) / 4);
  size_t least = end;
  while (least > reached && tokens_in(words, least - 1, end) <= most) --least;
  for (const Gap wanted : {Gap::line, Gap::space})
    for (size_t begin = least; begin < end; ++begin)
      if (words[begin].gap >= wanted) return begin;
  return end;
}

}  // namespace

std::vector<Passage> cut_passages(std::string_view text, const std::function<size_t(std::string_view)>& count_tokens,
                                  size_t max_tokens) {
  check(max_tokens >= max_word_bytes, "passages: expected at least ", max_word_bytes, " tokens, got ", max_tokens);
  const std::vector<Word> words = words_of(text, count_tokens);
  std::vector<Passage> passages;
  size_t first = 0, reached = 0;  // the next passage's first word, and the first that no passage has
  while (reached + 1 < words.size()) {
    if (tokens_in(words, first, reached + 1) > max_tokens) first = reached;
    const size_t end = best_end(words, first, reached, max_tokens);
    passages.push_back({words[first].begin, words[end - 1].end, words[first].line, words[end - 1].line});
    first = next_begin(words, first, reached, end);
    reached = end;
  }
  return passages;
}

}  // namespace cairn::text_search
