#include "apps/text_search/passages.h"

#include <algorithm>

namespace cairn::text_search {
namespace {

constexpr const char* white_space = " \t\n\v\f\r";

// What separates a word from the word before.
enum class Gap { none, space, line, paragraph };

struct Word {
  size_t begin, end;
  int64_t line;
  Gap gap;
  size_t tokens_before;  // in all words before
};

// The words of a text, then an empty word at its end.
std::vector<Word> words_of(std::string_view text, const std::function<size_t(std::string_view)>& count_tokens,
                           size_t most_bytes) {
  std::vector<Word> words;
  size_t tokens = 0, reached = 0;
  int64_t line = 1;
  while (true) {
    const size_t begin = std::min(text.find_first_not_of(white_space, reached), text.size());
    const std::string_view longest = text.substr(begin, most_bytes);
    size_t end = begin + std::min(longest.find_first_of(white_space), longest.size());
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

// Where the passage that begins at word `first` ends: the index of the word after its last.
size_t best_end(const std::vector<Word>& words, size_t first, size_t max_tokens) {
  const size_t count = words.size() - 1;
  size_t longest = first + 1;
  while (longest < count && words[longest + 1].tokens_before - words[first].tokens_before <= max_tokens) ++longest;
  if (longest == count) return count;
  size_t best = longest;
  for (size_t end = longest; end > first + (longest - first) / 2; --end)
    if (words[end].gap > words[best].gap) best = end;
  return best;
}

}  // namespace

std::vector<Passage> cut_passages(std::string_view text, const std::function<size_t(std::string_view)>& count_tokens,
                                  size_t max_tokens) {
  const std::vector<Word> words = words_of(text, count_tokens, std::min(max_word_bytes, max_tokens));
  std::vector<Passage> passages;
  for (size_t first = 0, end; first + 1 < words.size(); first = end) {
    end = best_end(words, first, max_tokens);
    const Word &begins = words[first], &ends = words[end - 1];
    passages.push_back({begins.line, ends.line, text.substr(begins.begin, ends.end - begins.begin)});
  }
  return passages;
}

}  // namespace cairn::text_search
