// WordPiece: equal to the Python package `tokenizers` on all kinds of text, and errors.
#include "apps/text_search/wordpiece.h"

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "apps/text_search/files.h"
#include "nn/io/hash.h"
#include "tests/io/io_test.h"

namespace {

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;

const std::string golden = CAIRN_SOURCE_DIR "/tests/golden/wordpiece/";

std::vector<std::string> golden_lines(const std::string& name) { return lines_of(bytes_of_file(golden + name)); }

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

// Compares a column of hashes.txt with the tokens of lines.txt.
void check_hashes(const WordPiece& tokenizer, size_t column) {
  const auto texts = golden_lines("lines.txt"), hashes = golden_lines("hashes.txt");
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

TEST_CASE("words become the longest tokens", "[wordpiece]") {
  const WordPiece tokenizer(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "aff", "a", "##a", "!", "e", "##b"}, {}, "tiny");
  const std::string hundred = "a" + std::string(99, 'b');
  std::string pieces_of_hundred = "a";
  for (int i = 0; i < 99; ++i) pieces_of_hundred += " ##b";
  const std::pair<std::string, std::string> cases[] = {
      {"unaffable UNAFFABLE!a", "un ##aff ##able un ##aff ##able ! a"},
      {"unaffables", "[UNK]"},
      {"ba au", "[UNK] [UNK]"},  // ## tokens never begin a word, other tokens never continue one
      {" \t\r\n\u3000", ""},
      {"a\xe4\xb8", "a"},
      {"\u00c9 e\u0301", "e e"},
      {hundred + "\u0301", pieces_of_hundred},
      {hundred + "b", "[UNK]"},
      {"a[SEP]a [sep]", "a [SEP] a [UNK] [UNK] [UNK]"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    std::string pieces;
    for (const int32_t id : tokenizer.tokenize(text)) pieces += (pieces.empty() ? "" : " ") + tokenizer.token(id);
    CHECK(pieces == expected);
  }
  CHECK(tokenizer.encode("a ! a", 5) == std::vector<int32_t>{2, 8, 10, 8, 3});
  CHECK(tokenizer.encode("a ! a", 4) == std::vector<int32_t>{2, 8, 10, 3});
}

TEST_CASE("tokens with other options equal those of the package tokenizers", "[wordpiece][golden]") {
  const auto vocabulary = golden_lines("vocab.txt");
  check_hashes({vocabulary, {false, false, true}, "vocab.txt"}, 0);
  check_hashes({vocabulary, {true, false, true}, "vocab.txt"}, 1);
  check_hashes({vocabulary, {false, true, false}, "vocab.txt"}, 2);
}

// Hidden, because it needs the model; tests/CMakeLists.txt runs it.
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
  for (const std::string& line : golden_lines("code_points.txt")) {
    const auto words = words_of(line);
    REQUIRE(words.size() == 5);
    runs.push_back({uint32_t(std::stoul(words[0], nullptr, 16)),
                    uint32_t(std::stoul(words[1], nullptr, 16)),
                    {words[2], words[3], words[4]}});
    for (uint32_t c = runs.back().first; c <= runs.back().last; ++c) {
      vocabulary.push_back(utf8(c));
      vocabulary.push_back("##" + utf8(c));
    }
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

TEST_CASE("a model's folder gives a tokenizer", "[wordpiece]") {
  const TemporaryFolder folder;
  const auto ids = [&](const std::string& config) {
    if (!config.empty()) put_file(folder / "tokenizer_config.json", config);
    return as_text(read_wordpiece(folder.path()).encode("a \u00e9 E [MASK]", 5));
  };
  put_file(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n\u00e9\nE\n");
  CHECK(ids("") == "2 4 1 1 3\n");
  CHECK(ids(R"({"do_lower_case": false, "strip_accents": null, "never_split": ["[MASK]"]})") == "2 4 5 6 3\n");
  CHECK(ids(R"({"do_lower_case": true, "strip_accents": false})") == "2 4 5 1 3\n");
  CHECK(ids(R"({"do_lower_case": false, "strip_accents": true, "tokenize_chinese_chars": false})") == "2 4 1 6 3\n");
  for (const char* config : {"[]", R"({"strip_accents": 1})", R"({"tokenizer_class": "XLMRobertaTokenizer"})"})
    CHECK_THAT(data_error([&] { ids(config); }), ContainsSubstring("tokenizer_config.json: "));
  put_file(folder / "tokenizer_config.json", "{}");
  const std::pair<const char*, const char*> others[] = {
      {"added_tokens.json", R"({"[PAD]": 0, "[E1]": 7})"},
      {"special_tokens_map.json", R"({"additional_special_tokens": ["[MASK]", {"content": "[E1]"}]})"},
      {"tokenizer.json", R"({"added_tokens": [{"id": 2, "content": "[CLS]"}, {"id": 7, "content": "[E1]"}]})"},
      {"tokenizer.json", R"({"normalizer": {"type": "[E1]"}})"},
      {"tokenizer.json", R"({"normalizer": {"lowercase": "[E1]"}})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"0": {"content": "[PAD]"}, "4": {"content": "[E1]"}}})"},
      {"tokenizer_config.json", R"({"cls_token": {"content": "[E1]"}})"},
  };
  for (const auto& [name, text] : others) {
    put_file(folder / name, text);
    CHECK_THAT(data_error([&] { ids(""); }), ContainsSubstring(name) && ContainsSubstring("[E1]"));
    std::filesystem::remove(folder / name);
  }
  const auto max_tokens = [&](const char* sentence_config, const char* lower_case = "true") {
    put_file(folder / "sentence_bert_config.json", sentence_config);
    put_file(folder / "tokenizer_config.json", concat(R"({"model_max_length": 9, "do_lower_case": )", lower_case, "}"));
    return read_wordpiece(folder.path()).max_tokens();
  };
  CHECK(max_tokens(R"({"max_seq_length": null, "do_lower_case": false})", "false") == 9);
  CHECK(max_tokens(R"({"max_seq_length": 12, "do_lower_case": true})") == 12);
  CHECK(max_tokens(R"({"max_seq_length": 1e30})") == 1 << 20);
  CHECK_THAT(data_error([&] { max_tokens(R"({"do_lower_case": true})", "false"); }),
             ContainsSubstring("sentence_bert_config.json: do_lower_case: expected false, got true"));
  CHECK_THAT(data_error([&] { max_tokens(R"({"max_seq_length": 2})"); }),
             ContainsSubstring("sentence_bert_config.json: max_seq_length: expected a number of at least 3, got 2"));
  const auto refused = [&](const std::vector<std::string>& vocabulary) {
    return data_error([&] { WordPiece(vocabulary, {}, "words"); });
  };
  CHECK_THAT(refused({"[PAD]", "[UNK]", "[SEP]"}), ContainsSubstring("words: no token [CLS]"));
  CHECK_THAT(refused({"a", "", "b"}), ContainsSubstring("words: line 2: empty"));
  CHECK_THAT(refused({"a", "b", "a"}), ContainsSubstring("words: line 3: token \"a\" is also in line 1"));
}
