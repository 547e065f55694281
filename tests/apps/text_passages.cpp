// text-search: folders are walked, texts cut into passages, passages shown.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <utility>

#include "apps/text_search/passages.h"
#include "apps/text_search/search.h"
#include "apps/text_search/walk.h"
#include "tests/io/io_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// Words between spaces, in pieces of four characters; commas are words of their own.
std::vector<WordPiece::Token> tokenize(std::string_view text) {
  std::vector<WordPiece::Token> tokens;
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = begin + 1;
    if (is_space(text[begin])) continue;
    while (text[begin] != ',' && end < text.size() && !is_space(text[end]) && text[end] != ',') ++end;
    const std::string word(text.substr(begin, end - begin));
    for (size_t at = 0; at < word.size() && at < 400; at += 4)
      tokens.push_back({int32_t(std::hash<std::string>()(word.substr(at, 4)) % 10000), begin, end});
  }
  return tokens;
}

std::vector<Passage> passages_of(std::string_view text, int64_t max_tokens) {
  std::vector<Passage> passages;
  PassageCutter cutter(text, tokenize, max_tokens);
  for (Passage passage; cutter.next(passage);) passages.push_back(passage);
  return passages;
}

std::string lines(int from, int to) {
  std::string text;
  for (int i = from; i <= to; ++i) text += concat("w", i, " of, line\n");  // 4 tokens
  return text;
}

std::vector<std::string> walked(const WalkOptions& options, SkippedCounts& skipped) {
  std::vector<std::string> paths;
  walk(options, skipped, [&](const FoundFile& file) {
    CHECK(file.bytes == int64_t(fs::file_size(file.path)));
    paths.push_back(file.path);
  });
  CHECK(std::is_sorted(paths.begin(), paths.end(), path_less));
  for (std::string& path : paths) path.erase(0, options.roots[0].string().size() + 1);
  return paths;
}

}  // namespace

TEST_CASE("passages have every token, are as long as they may be and know their lines", "[text_search]") {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return size_t(random()) % n; };
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const size_t words = below(400);
    for (size_t i = 0; i < words; ++i) {
      text += std::string(1 + below(below(20) ? 8 : 200), char('a' + below(26)));
      static const char* const between[] = {" ", " ", " ", ",", ", ", "\n", "\n", "\r\n\r\n", "\n \n\n", "\t"};
      text += between[below(std::size(between))];
    }
    const auto max_tokens = int64_t(1 + below(round % 2 ? 12 : 100));
    INFO("round " << round << ", " << max_tokens << " tokens");
    const std::vector<WordPiece::Token> tokens = tokenize(text);
    const std::vector<Passage> passages = passages_of(text, max_tokens);
    REQUIRE(passages.empty() == tokens.empty());
    size_t reached = 0;  // tokens that were in a passage
    for (size_t i = 0; i < passages.size(); ++i) {
      const Passage& passage = passages[i];
      REQUIRE(!passage.tokens.empty());
      REQUIRE(int64_t(passage.tokens.size()) <= max_tokens);
      CHECK(passage.last == (i + 1 == passages.size()));
      const auto line_at = [&](size_t at) {
        return 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
      };
      CHECK(passage.line == line_at(passage.begin));
      CHECK(passage.last_line == line_at(passage.end - 1));
      // Its tokens are some of the text's, from `first` on, where the overlap is the largest that fits.
      size_t first = reached;
      const auto is_here = [&](size_t at) {
        return at + passage.tokens.size() <= tokens.size() && tokens[at].begin == passage.begin &&
               std::equal(passage.tokens.begin(), passage.tokens.end(), tokens.begin() + std::ptrdiff_t(at),
                          [](int32_t id, const WordPiece::Token& token) { return id == token.id; });
      };
      while (first > 0 && reached - first < 32 && !is_here(first)) --first;
      REQUIRE(is_here(first));
      CHECK(reached - first <= size_t(max_tokens) / 4);
      if (max_tokens > 75 && i >= 2) CHECK(passages[i - 2].end <= passage.begin);
      CHECK(first + passage.tokens.size() > reached);
      reached = first + passage.tokens.size();
      CHECK(passage.end == tokens[reached - 1].end);
      // Words are whole, so the passage's own tokens are these, unless a word has more than there is room for.
      if (max_tokens > 75) {
        std::vector<int32_t> own;
        for (const WordPiece::Token& token :
             tokenize(std::string_view(text).substr(passage.begin, passage.end - passage.begin)))
          own.push_back(token.id);
        CHECK(own == passage.tokens);
      }
    }
    REQUIRE(reached == tokens.size());
  }
}

TEST_CASE("a passage ends behind a paragraph, else a line, else a word, and the next one begins with a line",
          "[text_search]") {
  // 40 tokens are 10 lines.
  const auto ends = [](const std::string& text, int64_t max_tokens) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const Passage& passage : passages_of(text, max_tokens)) found.emplace_back(passage.line, passage.last_line);
    return found;
  };
  using Lines = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(ends(lines(1, 10), 40) == Lines{{1, 10}});
  CHECK(ends(lines(1, 11), 42) == Lines{{1, 10}, {9, 11}});                      // behind a line; two lines of overlap
  CHECK(ends(lines(1, 7) + "\n" + lines(9, 14), 42) == Lines{{1, 7}, {7, 14}});  // behind a paragraph
  CHECK(ends(lines(1, 2) + "\n" + lines(4, 14), 42)[0] == Lines{{1, 11}}[0]);    // not one in the first half
  std::string words;
  for (int i = 0; i < 100; ++i) words += "longer" + std::to_string(i) + (i % 2 ? ", " : " ");  // 2.5 tokens a word
  const std::vector<Passage> passages = passages_of(words, 22);
  REQUIRE(passages.size() > 10);
  for (const Passage& passage : passages)
    if (!passage.last) CHECK(words[passage.end] == ' ');  // not in front of a comma
  // A passage that ends soon, in front of a long word, does not make the next one repeat what two others have.
  std::string singles;
  for (int i = 0; i < 81; ++i) singles += "a ";
  const std::vector<Passage> three = passages_of(singles + std::string(280, 'y') + " end", 80);
  REQUIRE(three.size() == 3);
  CHECK(three[1].tokens.size() == 21);
  CHECK(three[2].begin == three[0].end + 1);
  CHECK(passages_of("", 10).empty());
  CHECK(passages_of(" \n\n ", 10).empty());
  CHECK(passages_of("a", 1).size() == 1);
}

TEST_CASE("passages of a text without words, spaces or lines have bounded bytes", "[text_search]") {
  const auto largest = [](const std::string& text) {
    size_t most = 0, reached = 0;
    for (const Passage& passage : passages_of(text, 254)) {
      most = std::max(most, passage.end - passage.begin);
      CHECK(passage.begin <= reached + 100'001);
      reached = passage.end;
    }
    CHECK(reached == text.size());
    return most;
  };
  CHECK(largest(std::string(1'000'000, 'x')) <= max_passage_bytes);
  CHECK(largest("a" + std::string(100'000, ' ') + "b" + std::string(100'000, '\n') + "c") <= max_passage_bytes);
  std::string wide;
  while (wide.size() < 100'000) wide += "\xE4\xB8\xAD";
  CHECK(largest(wide) <= max_passage_bytes);
  for (const Passage& passage : passages_of(wide, 254)) CHECK(passage.begin % 3 == 0);  // between characters
  // What a passage repeats is not all that it has.
  const std::string eight = "a b c d e f g h";
  CHECK(passages_of(eight + std::string(20'000, ' ') + eight, 254).size() == 2);
  const std::vector<Passage> gap = passages_of("a" + std::string(100'000, '\n') + "b c", 254);
  REQUIRE(gap.size() == 2);
  CHECK(gap[1].line == 100'001);
}

TEST_CASE("a walk finds the files below folders, always in the same order, and what it leaves out", "[text_search]") {
  const TemporaryFolder folder;
  for (const char* name : {"a", "a/deep/er", "a-b", ".hidden", "build", "src/build", "index", "out/kept"})
    fs::create_directories(folder / name);
  for (const char* name : {"a/1", "a/deep/er/2", "a-b/3", "a.txt", ".hidden/4", ".5", "build/6", "src/build/7",
                           "src/8.o", "src/9.c", "index/10", "large", "out/11", "out/kept/12"})
    put_file(folder / name, std::string(name) + " text");
  fs::resize_file(folder / "large", 16'000'001);  // has no blocks on the disk
  fs::resize_file(folder / "src/9.c", 16'000'000);
  put_file(folder / "not-\xFF-utf8", "x");
  fs::create_symlink("..", folder / "a/loop");
  fs::create_symlink("1", folder / "a/link");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  WalkOptions options;
  options.roots = roots_of({folder.path(), (folder / "a").string(), (folder / "a/deep/../1").string()});
  CHECK(options.roots == std::vector<fs::path>{fs::canonical(folder.path())});
  options.leave_out = {fs::canonical(folder / "index")};
  SkippedCounts skipped{};
  using Names = std::vector<std::string>;
  CHECK(walked(options, skipped) == Names{"a/1", "a/deep/er/2", "a-b/3", "a.txt", "build/6", "out/11", "out/kept/12",
                                          "src/8.o", "src/9.c", "src/build/7"});
  CHECK(skipped[size_t(Skipped::link)] == 2);
  CHECK(skipped[size_t(Skipped::too_large)] == 1);
  CHECK(skipped[size_t(Skipped::name)] == 1);
  options.exclude = {"build", "*.o", "out/k*", "a/deep"};
  CHECK(walked(options, skipped) == Names{"a/1", "a-b/3", "a.txt", "out/11", "src/9.c"});
  if (geteuid() != 0) {
    fs::permissions(folder / "a", fs::perms::none);
    skipped = {};
    CHECK(walked(options, skipped).front() == "a-b/3");
    CHECK(skipped[size_t(Skipped::unreadable)] == 1);
    fs::permissions(folder / "a", fs::perms::owner_all);
  }
  // A link that is named is followed, hidden or not.
  options.roots = roots_of({(folder / "a/link").string(), (folder / ".hidden").string()});
  options.exclude = {};
  std::vector<std::string> found;
  walk(options, skipped, [&](const FoundFile& file) { found.push_back(fs::path(file.path).filename()); });
  CHECK(found == Names{"4", "1"});
  CHECK_THROWS_WITH(roots_of({folder / "missing"}), ContainsSubstring("missing") && ContainsSubstring("No such file"));
  CHECK_THROWS_AS(roots_of({folder / "pipe"}), UsageError);
  CHECK_THROWS_AS(roots_of({}), UsageError);
  CHECK(path_less("/a/b", "/a-b"));
  CHECK(path_less("/a", "/a/b"));
  CHECK_FALSE(path_less("/a/b", "/a/b"));
}

TEST_CASE("an excerpt is the line with the most words of the query, on one line of a terminal", "[text_search]") {
  Record record;
  record.line = 7;
  record.text = "the first line\nabout some other thing\n  that the reader wants, found\nhere";
  const auto shown = [&](const char* query) {
    const Excerpt excerpt = excerpt_of(record, query, tokenize);
    return concat(excerpt.line, ": ", one_line(excerpt.text, 30));
  };
  CHECK(shown("what other thing is that") == "8: about some other thing that th");
  CHECK(shown("reader wants") == "9: that the reader wants, found h");
  CHECK(shown("nothing") == "7: the first line about some othe");
  // Not the line with the most short or frequent words.
  record.text = "is it a, or is it ?\nwhat for, what else\nwhat for, and for what\nfor what\nthe fox";
  CHECK(shown("what is it, for a fox ?") == "11: the fox");
  CHECK(one_line("\x1b[31mred\x07\xC2\x9B"
                 "31m\xE2\x80\xAE"
                 "evil\x7f end \n",
                 80) == "[31mred 31m evil end");
  CHECK(one_line("\xC3\xA4\xC3\xA4\xC3\xA4", 2) == "\xC3\xA4\xC3\xA4");
  CHECK(one_line("a\xE4\xB8\xAD\xE4\xB8\xAD", 4) == "a\xE4\xB8\xAD");
  CHECK(one_line("", 5).empty());
  CHECK(shown_path("/a/b/c", "/a") == "b/c");
  CHECK(shown_path("/ab/c", "/a") == "/ab/c");
  CHECK(shown_path("/a", "/") == "a");
}
