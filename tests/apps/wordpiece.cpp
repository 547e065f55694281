// WordPiece: the tokens of the package `tokenizers`, of texts of every kind, and what is refused.
#include "apps/text_search/wordpiece.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "apps/text_search/files.h"
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
  for (const int32_t token : tokenizer.tokenize(text)) joined += (joined.empty() ? "" : " ") + tokenizer.token(token);
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

TEST_CASE("encode adds the ends and cuts", "[wordpiece]") {
  const WordPiece tokenizer(tiny, {}, "tiny");
  CHECK(tokenizer.size() == 19);
  CHECK(tokenizer.encode("") == std::vector<int32_t>{2, 3});
  CHECK(tokenizer.encode("a ! a") == std::vector<int32_t>{2, 9, 11, 9, 3});
  CHECK(tokenizer.encode("a ! a", 5) == std::vector<int32_t>{2, 9, 11, 9, 3});
  CHECK(tokenizer.encode("a ! a", 4) == std::vector<int32_t>{2, 9, 11, 3});
  CHECK(tokenizer.encode("a ! a", 2) == std::vector<int32_t>{2, 3});
  CHECK_THROWS_AS(tokenizer.encode("a", 1), UsageError);
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

TEST_CASE("texts of a million bytes in one word or none", "[wordpiece]") {
  const WordPiece tokenizer(tiny, {}, "tiny"), cased(tiny, {false, false, false}, "tiny");
  const auto count = [](const WordPiece& made, const std::string& unit) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    return made.tokenize(text).size();
  };
  CHECK(count(tokenizer, "x") == 1);
  CHECK(count(tokenizer, std::string(1, '\0')) == 0);
  CHECK(count(tokenizer, "\xff") == 0);
  CHECK(count(tokenizer, "\u0301") == 0);
  CHECK(count(cased, "\u0301") == 1);
  CHECK(count(tokenizer, "\U0001d16d\u302e") == 1);  // marks that are sorted and stay
  CHECK(count(tokenizer, "[SEP]") == 200'000);
  CHECK(count(tokenizer, "[SEP") == 500'000);
}

TEST_CASE("bytes that are no UTF-8 are replaced", "[wordpiece]") {
  CHECK(valid_utf8("a\xC3\xA9\xE4\xB8\xAD") == "a\xC3\xA9\xE4\xB8\xAD");
  CHECK(valid_utf8("a\xFF\xC3") == "a\uFFFD\uFFFD");
  CHECK(valid_utf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("a model's folder gives a tokenizer", "[wordpiece]") {
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
    expected += "[" + line + "]\n";
    std::replace(expected.end() - int(line.size()) - 2, expected.end(), ' ', ',');
  }
  CHECK(run.out == expected);
  // The last line may lack its line feed.
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n");
  const auto printed = [&](const std::string& text) {
    folder.write("text", text);
    return run_process("text-search", model + "--text-file " + (folder.path / "text").string()).out;
  };
  CHECK(printed("") == "");
  CHECK(printed("\n\na\r\n") == "[2,3]\n[2,3]\n[2,4,3]\n");
  CHECK(printed("a\na") == "[2,4,3]\n[2,4,3]\n");
}
