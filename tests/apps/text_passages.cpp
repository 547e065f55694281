// text-search: cutting texts into passages, and showing excerpts.
#include "apps/text_search/passages.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <sstream>
#include <utility>

#include "apps/text_search/index.h"
#include "core/error.h"
#include "nn/io/json.h"
#include "tests/catch.h"

using namespace cairn;
using namespace cairn::text_search;

namespace {

// Counts one token for every four bytes.
size_t count_tokens(std::string_view word) { return (word.size() + 3) / 4; }

std::string lines(int from, int to) {
  std::string text;
  for (int i = from; i <= to; ++i) text += concat("w", i, " of the line\n");  // 4 tokens
  return text;
}

}  // namespace

TEST_CASE("passages have every word, are not too long and know their lines", "[text_search]") {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return size_t(random()) % n; };
  const char* white_space = " \t\r\n";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t words = below(900); words > 0; --words) {
      text += std::string(1 + below(below(20) ? 8 : 300), char('a' + below(26)));
      static const char* const between[] = {" ", " ", " ", ", ", "\n", "\n", "\r\n\r\n", "\n \n\n", "\t"};
      text += between[below(std::size(between))];
    }
    const size_t max_tokens = 1 + below(160);
    INFO("round " << round << ", " << max_tokens << " tokens");
    const auto line_at = [&](size_t at) {
      return 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
    };
    size_t reached = 0;  // bytes of the text so far
    for (const Passage& passage : cut_passages(text, count_tokens, max_tokens)) {
      const auto begin = size_t(passage.text.data() - text.data());
      CHECK(begin == text.find_first_not_of(white_space, reached));
      reached = begin + passage.text.size();
      CHECK(passage.line == line_at(begin));
      CHECK(passage.last_line == line_at(reached - 1));
      std::istringstream words{std::string(passage.text)};
      size_t tokens = 0;
      for (std::string word; words >> word;) tokens += count_tokens(word);
      CHECK((tokens > 0 && tokens <= max_tokens));
    }
    CHECK(text.find_first_not_of(white_space, reached) == std::string::npos);
  }
}

TEST_CASE("a passage ends after a paragraph, else a line, else a word, else a character", "[text_search]") {
  using Lines = std::vector<std::pair<int64_t, int64_t>>;
  struct Case {
    std::string text;
    Lines passages;  // first and last lines
  };
  std::string words, wide;
  for (int i = 0; i < 100; ++i) words += "longer" + std::to_string(i) + ' ';
  while (wide.size() < 600) wide += "\xE4\xB8\xAD";
  const Case cases[] = {
      {lines(1, 16), {{1, 16}}},  // 64 tokens
      {lines(1, 17), {{1, 16}, {17, 17}}},
      {lines(1, 10) + "\n" + lines(12, 20), {{1, 10}, {12, 20}}},
      {lines(1, 5) + "\n" + lines(7, 20), {{1, 17}, {18, 20}}},  // the paragraph ends in the first half
      {words, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {wide, {{1, 1}, {1, 1}, {1, 1}}},
      {"a", {{1, 1}}},
      {" \n\n ", {}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.text);
    Lines found;
    for (const Passage& passage : cut_passages(each.text, count_tokens, 66)) {
      found.emplace_back(passage.line, passage.last_line);
      CHECK(is_utf8(std::string(passage.text)));
      if (each.text == words) CHECK(passage.text.starts_with("longer"));
    }
    CHECK(found == each.passages);
  }
}

TEST_CASE("an excerpt is one line that begins where most of the query is found", "[text_search]") {
  const WordPiece tokenizer({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "first", "line", "other", "thing", "reader",
                             "wants", "for", "fox", "what", "is"},
                            {}, "test");
  const auto shown = [&](const char* text, const char* query) {
    const Excerpt excerpt = excerpt_of({"", 7, 9, text, {}}, query, tokenizer);
    return concat(excerpt.line, ": ", one_line(excerpt.text, 20));
  };
  const char* text = "the first line\nthe other thing\n  reader wants the line\nfox";
  CHECK(shown(text, "other thing") == "8: the other thing read");
  CHECK(shown(text, "what the reader wants") == "9: reader wants the lin");
  CHECK(shown(text, "is") == "7: the first line the o");
  CHECK(shown("is is is for\nreader", "is for reader") == "8: reader");  // long words count more, repeated ones once
  CHECK(one_line("\x1b[31mred\x07\xC2\x9B"
                 "31m\xE2\x80\xAE"
                 "evil\x7f end \n",
                 80) == "[31mred 31m evil end");
  CHECK(one_line("\xC3\xA4\xC3\xA4\xC3\xA4", 2) == "\xC3\xA4\xC3\xA4");
  CHECK(one_line("a\xE4\xB8\xAD\xE4\xB8\xAD", 4) == "a\xE4\xB8\xAD");
}
