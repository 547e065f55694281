// text-search: files are found, texts cut into passages, passages shown.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <random>
#include <sstream>
#include <utility>

#include "apps/text_search/files.h"
#include "apps/text_search/passages.h"
#include "apps/text_search/search.h"
#include "tests/apps/text_search_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// A token for every four bytes.
size_t count_tokens(std::string_view word) { return (word.size() + 3) / 4; }

std::vector<Passage> passages_of(std::string_view text, size_t max_tokens) {
  return cut_passages(text, count_tokens, max_tokens);
}

std::string lines(int from, int to) {
  std::string text;
  for (int i = from; i <= to; ++i) text += concat("w", i, " of the line\n");  // 4 tokens
  return text;
}

}  // namespace

TEST_CASE("passages have every word, are as long as they may be and know their lines", "[text_search]") {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return size_t(random()) % n; };
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const size_t words = below(900);
    for (size_t i = 0; i < words; ++i) {
      text += std::string(1 + below(below(20) ? 8 : 300), char('a' + below(26)));
      static const char* const between[] = {" ", " ", " ", ", ", "\n", "\n", "\r\n\r\n", "\n \n\n", "\t"};
      text += between[below(std::size(between))];
    }
    const size_t max_tokens = 64 + below(100);
    INFO("round " << round << ", " << max_tokens << " tokens");
    const std::vector<Passage> passages = passages_of(text, max_tokens);
    CHECK(passages.empty() == (words == 0));
    std::vector<size_t> covered(text.size());
    for (size_t i = 0; i < passages.size(); ++i) {
      const Passage& passage = passages[i];
      for (size_t at = passage.begin; at < passage.end; ++at) ++covered[at];
      const auto line_at = [&](size_t at) {
        return 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
      };
      CHECK(passage.line == line_at(passage.begin));
      CHECK(passage.last_line == line_at(passage.end - 1));
      // Words apart have no fewer tokens than when a long one among them is cut.
      std::istringstream own(text.substr(passage.begin, passage.end - passage.begin));
      size_t tokens = 0, overlap = 0;
      for (std::string word; own >> word;) tokens += count_tokens(word);
      CHECK(tokens <= max_tokens);
      if (i == 0) continue;
      CHECK(passage.end > passages[i - 1].end);
      if (passage.begin >= passages[i - 1].end) continue;
      std::istringstream repeated(text.substr(passage.begin, passages[i - 1].end - passage.begin));
      for (std::string word; repeated >> word;) overlap += count_tokens(word);
      CHECK(overlap <= std::min<size_t>(32, max_tokens / 4));
    }
    for (size_t at = 0; at < text.size(); ++at) {
      const bool blank = std::string_view(" \t\r\n").find(text[at]) != std::string_view::npos;
      if (!blank) REQUIRE((covered[at] == 1 || covered[at] == 2));
    }
  }
}

TEST_CASE("a passage ends behind a paragraph, else a line, else a word, and the next one begins with a line",
          "[text_search]") {
  using Lines = std::vector<std::pair<int64_t, int64_t>>;
  const auto ends = [](const std::string& text, size_t max_tokens) {
    Lines found;
    for (const Passage& passage : passages_of(text, max_tokens)) found.emplace_back(passage.line, passage.last_line);
    return found;
  };
  // 64 tokens are 16 lines.
  CHECK(ends(lines(1, 16), 64) == Lines{{1, 16}});
  CHECK(ends(lines(1, 17), 66) == Lines{{1, 16}, {13, 17}});                                    // four lines of overlap
  CHECK(ends(lines(1, 10) + "\n" + lines(12, 20), 66) == Lines{{1, 10}, {9, 20}});              // behind a paragraph
  CHECK(ends(lines(1, 5) + "\n" + lines(7, 20), 66)[0] == std::pair<int64_t, int64_t>(1, 17));  // not in the first half
  std::string words;
  for (int i = 0; i < 100; ++i) words += "longer" + std::to_string(i) + ' ';
  const std::vector<Passage> passages = passages_of(words, 64);
  REQUIRE(passages.size() == 4);
  for (const Passage& passage : passages) {
    CHECK(words[passage.end] == ' ');
    CHECK((passage.begin == 0 || words[passage.begin - 1] == ' '));
  }
  CHECK(passages_of("", 64).empty());
  CHECK(passages_of(" \n\n ", 64).empty());
  CHECK(passages_of("a", 64).size() == 1);
  // What has no spaces is cut between characters.
  std::string wide;
  while (wide.size() < 10'000) wide += "\xE4\xB8\xAD";
  REQUIRE(passages_of(wide, 64).size() > 30);
  for (const Passage& passage : passages_of(wide, 64)) CHECK((passage.begin % 3 == 0 && passage.end % 3 == 0));
  // A long word leaves no room for what would be repeated.
  std::string single;
  for (int i = 0; i < 64; ++i) single += "a ";
  const auto by_byte = [](std::string_view word) { return word.size(); };
  const std::vector<Passage> two = cut_passages(single + std::string(64, 'x'), by_byte, 64);
  REQUIRE(two.size() == 2);
  CHECK((two[0].begin == 0 && two[1].begin == single.size()));
}

TEST_CASE("files below folders are found in order, with what is left out", "[text_search]") {
  const TemporaryFolder folder;
  for (const char* name : {"a", "a/deep/er", "a-b", ".hidden", "build", "src/build", "model"})
    fs::create_directories(folder / name);
  for (const char* name : {"a/1", "a/deep/er/2", "a-b/3", "a.txt", ".hidden/4", ".5", "build/6", "src/build/7",
                           "src/8.o", "src/9.c", "model/10", "large"})
    put_file(folder / name, std::string(name) + " text");
  fs::resize_file(folder / "large", 16'000'001);  // has no blocks on the disk
  fs::resize_file(folder / "src/9.c", 16'000'000);
  put_file(folder / "not-\xFF-utf8", "x");
  fs::create_symlink("..", folder / "a/loop");
  fs::create_symlink("1", folder / "a/link");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  using Names = std::vector<std::string>;
  SkippedCounts skipped;
  const auto found = [&](const FileSearch& search) {
    Names names;
    skipped.clear();
    for (const fs::path& file : find_files(search, skipped))
      names.push_back(file.lexically_relative(fs::canonical(folder.path())));
    return names;
  };
  // Each file once, though paths overlap.
  FileSearch search{{folder.path(), (folder / "a").string(), (folder / "a/deep/../1").string()}, {}, {}};
  search.leave_out = fs::canonical(folder / "model");
  CHECK(found(search) == Names{"a/1", "a/deep/er/2", "a-b/3", "a.txt", "build/6", "src/8.o", "src/9.c", "src/build/7"});
  search.paths.resize(1);
  found(search);
  CHECK(skipped == SkippedCounts{{"links", 2}, {"name", 1}, {"too large", 1}});
  search.exclude = split_patterns("build/,*.o,a/deep");
  CHECK(found(search) == Names{"a/1", "a-b/3", "a.txt", "src/9.c"});
  // A link that is named is followed, and a hidden folder searched.
  CHECK(found({{folder / "a/link", folder / ".hidden"}, {}, {}}) == Names{".hidden/4", "a/1"});
  CHECK_THROWS_WITH(found({{folder / "missing"}, {}, {}}), ContainsSubstring("missing: cannot be read: No such file"));
  CHECK_THROWS_AS(found({{folder / "pipe"}, {}, {}}), UsageError);
  CHECK_THROWS_AS(found({}), UsageError);
  CHECK_THROWS_AS(split_patterns("a,,b"), UsageError);

  put_file(folder / "binary", std::string("a\0b", 3));
  skipped.clear();
  CHECK(read_text(folder / "a/1", skipped) == "a/1 text");
  CHECK_FALSE(read_text(folder / "binary", skipped));
  CHECK_FALSE(read_text(folder / "gone", skipped));
  CHECK(skipped == SkippedCounts{{"binary", 1}, {"unreadable", 1}});
}

TEST_CASE("an excerpt is the line with the most words of the query, on one line of a terminal", "[text_search]") {
  const WordPiece tokenizer({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "first", "line", "other", "thing", "reader",
                             "wants", "for", "fox", "what", "is", "##is"},
                            {}, "test");
  Record record;
  record.line = 7;
  record.text = "the first line\nthe other thing\n  reader wants the line\nfox";
  const auto shown = [&](const char* query) {
    const Excerpt excerpt = excerpt_of(record, query, tokenizer);
    return concat(excerpt.line, ": ", one_line(excerpt.text, 20));
  };
  CHECK(shown("other thing") == "8: the other thing read");
  CHECK(shown("what the reader wants") == "9: reader wants the lin");
  CHECK(shown("is") == "7: the first line the o");
  // Not the line with the most frequent words.
  record.text = "what for is is is\nwhat for\nwhat for\nfox";
  CHECK(shown("what is for fox") == "10: fox");
  CHECK(one_line("\x1b[31mred\x07\xC2\x9B"
                 "31m\xE2\x80\xAE"
                 "evil\x7f end \n",
                 80) == "[31mred 31m evil end");
  CHECK(one_line("\xC3\xA4\xC3\xA4\xC3\xA4", 2) == "\xC3\xA4\xC3\xA4");
  CHECK(one_line("a\xE4\xB8\xAD\xE4\xB8\xAD", 4) == "a\xE4\xB8\xAD");
  CHECK(one_line("", 5).empty());
}
