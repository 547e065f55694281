// WordPiece: the tokens of the package `tokenizers`, of texts of every kind, and what is refused.
#include "apps/text_search/wordpiece.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "tests/apps/process.h"
#include "tests/catch.h"

namespace {

using namespace cairn;
using namespace cairn::text_search;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

const std::string golden = CAIRN_SOURCE_DIR "/tests/golden/wordpiece/";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// A line of the golden files.
std::string as_text(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text + "\n";
}

WordPiece golden_tokenizer(const WordPieceOptions& options) {
  return {lines_of(read_file(golden + "vocab.txt")), options, "vocab.txt"};
}

// A folder that goes with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / concat("cairn-wordpiece-", getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
};

const std::vector<std::string> tiny = {"[PAD]",  "[UNK]", "[CLS]", "[SEP]", "[MASK]",  "un", "##aff",
                                       "##able", "aff",   "a",     "##a",   "!",       "e",  "E",
                                       "\u00e9", "中",    "##b",   "i",     "##\u0307"};

// The tokens' texts, separated by blanks.
std::string pieces(const std::string& text, const WordPieceOptions& options = {}) {
  const WordPiece tokenizer(tiny, options, "tiny");
  std::string joined;
  for (const auto& token : tokenizer.tokenize(text)) joined += (joined.empty() ? "" : " ") + tokenizer.token(token.id);
  return joined;
}

// Compares a column of hashes.txt with the tokens of lines.txt.
void check_hashes(const WordPiece& tokenizer, size_t column) {
  const auto texts = lines_of(read_file(golden + "lines.txt")), hashes = lines_of(read_file(golden + "hashes.txt"));
  REQUIRE(hashes.size() == texts.size() + 1);
  std::string all;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string ids = as_text(tokenizer.encode(texts[i]));
    INFO("lines.txt, line " << i + 1 << ", column " << column << ": " << ids);
    CHECK(xxh128(ids).substr(0, 4) == words_of(hashes[i + 1]).at(column));
    all += ids;
  }
  CHECK(xxh128(all) == words_of(hashes[0]).at(column + 1));
}

}  // namespace

TEST_CASE("words become the longest pieces", "[wordpiece]") {
  CHECK(pieces("unaffable") == "un ##aff ##able");
  CHECK(pieces("un affable") == "un aff ##able");
  CHECK(pieces("UNAFFABLE!a") == "un ##aff ##able ! a");
  CHECK(pieces("unaffables") == "[UNK]");
  CHECK(pieces("ba") == "[UNK]");  // pieces within a word do not begin one
  CHECK(pieces("au") == "[UNK]");  // nor the other way round
  CHECK(pieces("##a") == "[UNK] [UNK] a");
  CHECK(pieces("") == "");
  CHECK(pieces(" \t\r\n\u3000") == "");
  CHECK(pieces(std::string("a\0a", 3)) == "a ##a");
  CHECK(pieces("a\xff"
               "a\xe4\xb8"
               "a\xed\xa0\x80"
               "a\xf5") == "a ##a ##a ##a");
  CHECK(pieces("a中a") == "a 中 a");
  CHECK(pieces("a中a", {true, true, false}) == "[UNK]");
  CHECK(pieces("\u00c9 e\u0301") == "e e");
  CHECK(pieces("\u00c9 E", {true, false, true}) == "\u00e9 e");
  CHECK(pieces("\u00c9 E", {false, true, true}) == "E E");
  CHECK(pieces("\u0130") == "i");
  CHECK(pieces("\u0130", {true, false, true}) == "i ##\u0307");
  const std::string hundred = "a" + std::string(99, 'b');
  CHECK(pieces(hundred).substr(0, 11) == "a ##b ##b #");
  CHECK(pieces(hundred + "b") == "[UNK]");
  CHECK(pieces(hundred + "\u0301")[0] == 'a');
}

TEST_CASE("special tokens may stand in a text", "[wordpiece]") {
  CHECK(pieces("a[SEP]a [CLS][MASK] [PAD][UNK]") == "a [SEP] a [CLS] [MASK] [PAD] [UNK]");
  CHECK(pieces("[sep]") == "[UNK] [UNK] [UNK]");
  CHECK(pieces("[[SEP]!") == "[UNK] [SEP] !");
  CHECK(pieces("[SEP") == "[UNK] [UNK]");
  CHECK(pieces("[SE\xffP]") == "[UNK] [UNK] [UNK]");
}

TEST_CASE("tokens tell where their word stands", "[wordpiece]") {
  const WordPiece tokenizer(tiny, {}, "tiny");
  const auto places = [&](const std::string& text) {
    std::string all;
    for (const auto& token : tokenizer.tokenize(text)) all += concat(token.begin, '-', token.end, ' ');
    return all;
  };
  CHECK(places(" unaffable a!") == "1-10 1-10 1-10 11-12 12-13 ");
  CHECK(places("a中[SEP]a") == "0-1 1-4 4-9 9-10 ");
  CHECK(places("e\u0301 \u00e9") == "0-3 4-6 ");
  CHECK(places(std::string("\0a\0a\0", 5)) == "1-4 1-4 ");
  CHECK(places(std::string(1000, 'a') + " a") == "0-1000 1001-1002 ");
}

TEST_CASE("encode adds the ends and cuts", "[wordpiece]") {
  const WordPiece tokenizer(tiny, {}, "tiny");
  CHECK(tokenizer.size() == 19);
  CHECK(tokenizer.encode("") == std::vector<int32_t>{2, 3});
  CHECK(tokenizer.encode("a ! a") == std::vector<int32_t>{2, 9, 11, 9, 3});
  CHECK(tokenizer.encode("a ! a", 5) == std::vector<int32_t>{2, 9, 11, 9, 3});
  CHECK(tokenizer.encode("a ! a", 4) == std::vector<int32_t>{2, 9, 11, 3});
  CHECK(tokenizer.encode("a ! a", 2) == std::vector<int32_t>{2, 3});
  CHECK_THROWS_AS(tokenizer.encode("a", 1), UsageError);
  for (const size_t bytes : {4095, 4096, 4097, 8192}) {  // around the pieces that it reads
    CHECK(tokenizer.encode(std::string(bytes, '!')) == [&] {
      std::vector<int32_t> all(bytes + 2, 11);
      all.front() = 2, all.back() = 3;
      return all;
    }());
  }
}

TEST_CASE("tokens are those of the package tokenizers", "[wordpiece][golden]") {
  const auto texts = lines_of(read_file(golden + "lines.txt")), ids = lines_of(read_file(golden + "ids.txt"));
  REQUIRE(texts.size() == 2000);
  REQUIRE(ids.size() == texts.size());
  const WordPiece tokenizer = golden_tokenizer({});
  for (size_t i = 0; i < texts.size(); ++i) {
    INFO("lines.txt, line " << i + 1);
    CHECK(as_text(tokenizer.encode(texts[i])) == ids[i] + "\n");
  }
  check_hashes(golden_tokenizer({false, false, true}), 0);
  check_hashes(golden_tokenizer({true, false, true}), 1);
  check_hashes(golden_tokenizer({false, true, false}), 2);
}

// Hidden, because it needs the model. tests/CMakeLists.txt runs it.
TEST_CASE("tokens of the published vocabulary are those of the package tokenizers", "[.minilm]") {
  const char* folder = std::getenv("CAIRN_MINILM");
  REQUIRE(folder != nullptr);
  check_hashes(read_wordpiece(folder), 3);
}

TEST_CASE("every code point of Unicode 8 is normalized as the package tokenizers does it", "[wordpiece][golden]") {
  struct Run {
    uint32_t first, last;
    std::vector<std::string> hashes;
  };
  std::vector<Run> runs;
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  const auto utf8 = [](uint32_t c) {
    if (c < 0x80) return std::string(1, char(c));
    std::string bytes;
    for (; c >= (bytes.empty() ? 0x40u : 0x40u >> bytes.size()); c >>= 6) bytes.insert(0, 1, char(0x80 | (c & 0x3F)));
    return char(0xFFu << (7 - bytes.size()) | c) + bytes;
  };
  for (const std::string& line : lines_of(read_file(golden + "code_points.txt"))) {
    const auto words = words_of(line);
    REQUIRE(words.size() == 5);
    runs.push_back({uint32_t(std::stoul(words[0], nullptr, 16)),
                    uint32_t(std::stoul(words[1], nullptr, 16)),
                    {words[2], words[3], words[4]}});
    for (uint32_t c = runs.back().first; c <= runs.back().last; ++c)
      vocabulary.push_back(utf8(c)), vocabulary.push_back("##" + utf8(c));
  }
  REQUIRE(vocabulary.size() == 4 + 2 * 128223);
  const WordPieceOptions options[] = {{true, true, true}, {false, false, false}, {true, false, true}};
  for (size_t i = 0; i < 3; ++i) {
    const WordPiece tokenizer(vocabulary, options[i], "code points");
    for (const Run& run : runs) {
      std::string ids;
      for (uint32_t c = run.first; c <= run.last; ++c) ids += as_text(tokenizer.encode("a" + utf8(c) + "b"));
      INFO(std::hex << "U+" << run.first << " to U+" << run.last << ", options " << i);
      CHECK(xxh128(ids).substr(0, 8) == run.hashes[i]);
    }
  }
}

TEST_CASE("a text cut anywhere has the same tokens", "[wordpiece]") {
  const WordPiece tokenizer = golden_tokenizer({});
  std::mt19937 random(1);
  for (const std::string& text : lines_of(read_file(golden + "lines.txt"))) {
    const auto whole = tokenizer.tokenize(text);
    for (size_t i = 0; i < whole.size(); ++i) {
      CHECK(whole[i].begin < whole[i].end);
      CHECK(whole[i].end <= text.size());
      if (i > 0) CHECK((whole[i - 1].begin <= whole[i].begin && whole[i - 1].end <= whole[i].end));
    }
    for (const size_t longest : {1, 2, 40}) {
      std::vector<WordPiece::Token> tokens;
      WordPiece::Stream stream(tokenizer);
      for (int again = 0; again < 2; ++again) {
        tokens.clear();
        for (size_t begin = 0, size; begin < text.size(); begin += size) {
          size = 1 + random() % longest;
          stream.add(std::string_view(text).substr(begin, size), tokens);
        }
        stream.end(tokens);
        CHECK(std::equal(tokens.begin(), tokens.end(), whole.begin(), whole.end(), [](const auto& a, const auto& b) {
          return a.id == b.id && a.begin == b.begin && a.end == b.end;
        }));
      }
    }
    // Cut at a blank, each part by itself has its tokens.
    if (const size_t blank = text.find(' '); blank < text.size()) {
      auto parts = tokenizer.tokenize(text.substr(0, blank));
      for (const auto& token : tokenizer.tokenize(text.substr(blank)))
        parts.push_back({token.id, token.begin + blank, token.end + blank});
      REQUIRE(parts.size() == whole.size());
      for (size_t i = 0; i < parts.size(); ++i)
        CHECK((parts[i].id == whole[i].id && parts[i].begin == whole[i].begin && parts[i].end == whole[i].end));
    }
  }
}

TEST_CASE("texts of ten million bytes in one word or none", "[wordpiece]") {
  const WordPiece tokenizer(tiny, {}, "tiny"), cased(tiny, {false, false, false}, "tiny");
#if CAIRN_SANITIZED
  const size_t bytes = 1'000'000;
#else
  const size_t bytes = 10'000'000;
#endif
  const auto repeated = [&](const std::string& unit) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
  };
  const auto count = [](const WordPiece& made, const std::string& text) { return made.encode(text).size() - 2; };
  CHECK(count(tokenizer, repeated("x")) == 1);
  CHECK(count(tokenizer, repeated(std::string(1, '\0'))) == 0);
  CHECK(count(tokenizer, repeated("\xff")) == 0);
  CHECK(count(tokenizer, repeated("\u0301")) == 0);
  CHECK(count(cased, repeated("\u0301")) == 1);
  CHECK(count(tokenizer, repeated("\U0001d16d\u302e")) == 1);  // marks that are sorted and stay
  CHECK(count(tokenizer, repeated("[SEP]")) == bytes / 5);
  CHECK(count(tokenizer, repeated("[SEP")) == 2 * bytes / 4);
  CHECK(tokenizer.encode(repeated("!"), 128).size() == 128);
}

TEST_CASE("a model's folder gives a tokenizer or says what is wrong", "[wordpiece]") {
  const Folder folder;
  const std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n\u00e9\nE\n";
  const auto ids = [&](const std::string& config) {
    if (!config.empty()) folder.write("tokenizer_config.json", config);
    return as_text(read_wordpiece(folder.path).encode("a \u00e9 E [MASK]", 5));
  };
  folder.write("vocab.txt", vocabulary);
  CHECK(ids("") == "2 4 1 1 3\n");
  folder.write("vocab.txt", vocabulary.substr(0, vocabulary.size() - 1));
  CHECK(ids(R"({"do_lower_case": false, "strip_accents": null, "never_split": [1]})") == "2 4 5 6 3\n");
  folder.write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n\u00e9\r\nE\r\n");
  CHECK(ids(R"({"do_lower_case": true, "strip_accents": false})") == "2 4 5 1 3\n");
  CHECK(ids(R"({"do_lower_case": false, "strip_accents": true, "tokenize_chinese_chars": false})") == "2 4 1 6 3\n");

  const auto fails = [&](const std::string& name, const std::string& text, const std::string& what) {
    folder.write("vocab.txt", vocabulary);
    folder.write("tokenizer_config.json", "{}");
    fs::remove(folder.path / name);
    if (!text.empty()) folder.write(name, text);
    INFO(name << ": " << text.substr(0, 100));
    try {
      read_wordpiece(folder.path);
      FAIL("nothing was wrong");
    } catch (const DataError& error) {
      CHECK_THAT(error.what(), ContainsSubstring((folder.path / name).string() + ":") && ContainsSubstring(what));
      CHECK(std::string(error.what()).size() < 400);
    }
  };
  fails("vocab.txt", "", "cannot be opened");
  fails("vocab.txt", "a\n", "no token [PAD]");
  for (const std::string token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    std::string without = vocabulary;
    fails("vocab.txt", without.replace(without.find(token), 5, "x" + token.substr(1, 4)), "no token " + token);
  }
  fails("vocab.txt", vocabulary + "a\n", "line 8: token \"a\" is that of line 5 too");
  fails("vocab.txt", vocabulary + "\nb\n", "line 8: empty");
  fails("vocab.txt", vocabulary + "b\xff\n", "line 8: token");
  fails("vocab.txt", std::string(9'000'000, 'a'), "more than 8388608 bytes");
  fails("vocab.txt", std::string(2'000'000, '\n'), "more than 1048576 tokens");
  fails("tokenizer_config.json", "{", "line 1");
  fails("tokenizer_config.json", "[]", "expected an object");
  fails("tokenizer_config.json", R"({"do_lower_case": null, "tokenize_chinese_chars": "no"})",
        "tokenize_chinese_chars");
  fails("tokenizer_config.json", std::string(9'000'000, ' '), "more than 8388608 bytes");
  fs::remove(folder.path / "tokenizer_config.json");
  fs::create_directory(folder.path / "tokenizer_config.json");
  folder.write("vocab.txt", vocabulary);
  CHECK_THROWS_AS(read_wordpiece(folder.path), DataError);
}

TEST_CASE("text-search tokenize prints the tokens of each line", "[wordpiece]") {
  const Folder folder;
  folder.write("vocab.txt", read_file(golden + "vocab.txt"));
  const std::string model = "tokenize --model " + folder.path.string() + " ";
  const auto run = run_process("text-search", model + "--text-file " + golden + "lines.txt");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  std::string expected;
  for (const std::string& line : lines_of(read_file(golden + "ids.txt"))) {
    expected += "[";
    for (const char c : line) expected += c == ' ' ? ", " : std::string(1, c);
    expected += "]\n";
  }
  CHECK(run.out == expected);
  // From a pipe, cut.
  const std::string cut = run_process("text-search", model + "--text-file - --max-tokens 3",
                                      concat("sh -c 'cat ", golden, "lines.txt | \"$@\"' -- "))
                              .out;
  const auto lines = lines_of(cut);
  REQUIRE(lines.size() == 2000);
  for (const std::string& line : lines) CHECK(std::count(line.begin(), line.end(), ',') <= 2);
  // The last line may lack its line feed.
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n");
  const auto printed = [&](const std::string& text) {
    folder.write("text", text);
    return run_process("text-search", model + "--text-file " + (folder.path / "text").string()).out;
  };
  CHECK(printed("") == "");
  CHECK(printed("\n\na\r\n") == "[2, 3]\n[2, 3]\n[2, 4, 3]\n");
  CHECK(printed("a\na") == "[2, 4, 3]\n[2, 4, 3]\n");

  const auto fails = [&](int code, const std::string& text, const std::string& arguments) {
    const auto failed = run_process("text-search", arguments);
    INFO(arguments << ": " << failed.err);
    CHECK(failed.exit_code == code);
    CHECK_THAT(failed.err, Catch::Matchers::StartsWith("text-search: error: ") && ContainsSubstring(text));
    CHECK(std::count(failed.err.begin(), failed.err.end(), '\n') == 1);
    CHECK(failed.out.empty());
  };
  fails(2, "--model", "tokenize --text-file x");
  fails(2, "--text-file", model);
  fails(2, "--max-tokens", model + "--text-file x --max-tokens 1");
  fails(3, "no-such-file: cannot be opened", model + "--text-file no-such-file");
  fails(3, "cannot be read", model + "--text-file " + folder.path.string());
  fails(3, "no-such-folder/vocab.txt", "tokenize --model no-such-folder --text-file x");
}

#if !CAIRN_SANITIZED  // which need more memory than any limit here
TEST_CASE("text-search tokenize needs no memory for a long line", "[wordpiece]") {
  const Folder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n!\n");
  folder.write("text", std::string(20'000'000, '!'));
  const auto run =
      run_process("text-search", concat("tokenize --model ", folder.path, " --text-file ", folder.path / "text"),
                  "ulimit -d 30000; ");  // kilobytes
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(run.out.size() == 3 * 20'000'000 + 7);
}
#endif
