// The tokens equal those of the Python package `tokenizers` (BertNormalizer, BertPreTokenizer, WordPiece) for every
// code point of Unicode 8. Later code points may differ: that package has the categories of Unicode 8, so it takes a
// newer accent, punctuation or format character for a letter. Here such a character has its own category.
#include "apps/text_search/wordpiece.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/text_search/files.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

constexpr int64_t no_limit = WordPieceOptions().max_tokens;
constexpr size_t max_word_characters = 100;  // a longer word is [UNK]
constexpr int32_t replacement_character = 0xFFFD;

utf8proc_category_t category_of(int32_t c) {
  switch (c) {  // changed since Unicode 8
    case 0x166D:
    case 0x111C9: return UTF8PROC_CATEGORY_PO;
    case 0x1734:
    case 0x1171E: return UTF8PROC_CATEGORY_MN;
    case 0x1885:
    case 0x1886: return UTF8PROC_CATEGORY_LO;
    case 0xA9BD: return UTF8PROC_CATEGORY_MC;
    default: return utf8proc_category(c);
  }
}

bool is_space(int32_t c, utf8proc_category_t category) {
  return c == '\t' || c == '\n' || c == '\r' || (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

// Control and format characters, private use.
bool is_removed(int32_t c, utf8proc_category_t category) {
  return category >= UTF8PROC_CATEGORY_CC || c == replacement_character;
}

bool is_punctuation(int32_t c) {
  const utf8proc_category_t category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) || (c >= '!' && c <= '/') ||
         (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// The blocks of CJK ideographs in `tokenizers`, which lacks U+2B820 to U+2B91F.
bool is_cjk(int32_t c) {
  static constexpr std::pair<int32_t, int32_t> blocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                                           {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                                           {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(blocks), std::end(blocks),
                     [c](const auto& block) { return c >= block.first && c <= block.second; });
}

// The first code point of a text that is not empty, and its number of bytes. An invalid byte gives U+FFFD.
std::pair<int32_t, size_t> first_code_point(std::string_view text) {
  utf8proc_int32_t c = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      utf8proc_ssize_t(std::min<size_t>(text.size(), 4)), &c);
  return bytes > 0 ? std::pair(int32_t(c), size_t(bytes)) : std::pair(replacement_character, size_t{1});
}

std::string utf8_of(int32_t c) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto size = utf8proc_encode_char(c, bytes.data());
  return {bytes.begin(), bytes.begin() + size};
}

// The parts of a code point before lower case: its canonical decomposition (NFD) if accents are stripped, else itself.
std::vector<int32_t> parts_of(int32_t c, const WordPieceOptions& options) {
  // The only code point whose lower case has two: i and a dot above.
  if (c == 0x130 && options.lower_case && !options.strip_accents) return {'i', 0x307};
  if (!options.strip_accents) return {c};
  std::vector<int32_t> parts(16);  // the longest canonical decomposition has 4
  int unused = 0;
  const auto count =
      utf8proc_decompose_char(c, parts.data(), utf8proc_ssize_t(parts.size()), UTF8PROC_DECOMPOSE, &unused);
  parts.resize(size_t(count));
  return parts;
}

// Appends a part to a word. If accents are stripped, leaves out accents and sorts the other marks after a starter by
// their combining class (canonical order). `marks` is the index of the first mark after the last starter.
void add_part(int32_t part, const WordPieceOptions& options, std::vector<int32_t>& word, size_t& marks) {
  const auto class_of = [](int32_t c) { return utf8proc_get_property(c)->combining_class; };  // 0: a starter
  size_t at = word.size();
  if (options.strip_accents)
    while (class_of(part) > 0 && at > marks && class_of(word[at - 1]) > class_of(part)) --at;
  const bool is_accent = options.strip_accents && category_of(part) == UTF8PROC_CATEGORY_MN;
  if (!is_accent && word.size() <= max_word_characters)
    word.insert(word.begin() + int64_t(at), options.lower_case ? utf8proc_tolower(part) : part);
  if (class_of(part) == 0) marks = word.size();
}

// Error (DataError): a token is not in the array `accepted`. `tokens` is a text, an object with its content, a list of
// these, or an object with ids, which has the tokens as keys or as values. null is no token.
void expect_tokens(const Json& tokens, const std::string& where, const Json& accepted) {
  if (tokens.is_array() || (tokens.is_object() && !tokens.contains("content")))
    for (const auto& [key, value] : tokens.items())
      expect_tokens(value.is_number() ? Json(key) : value, where, accepted);
  else
    expect_one_of({{"token", tokens.is_object() ? tokens["content"] : tokens}}, where, "token", accepted);
}

// Error (DataError): a file beside vocab.txt has another token that stays whole than BERT's five.
void check_tokens(const std::filesystem::path& folder) {
  const Json usual = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"}) {
    const Json object = read_optional_object(folder / name);
    const auto expect_usual = [&](const std::string& key) {
      expect_tokens(object.value(key, Json()), concat(folder / name, ": ", key), usual);
    };
    for (const char* role : {"bos", "cls", "eos", "mask", "pad", "sep", "unk"}) expect_usual(concat(role, "_token"));
    for (const char* list :
         {"added_tokens", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", "never_split"})
      expect_usual(list);
  }
  expect_tokens(read_optional_object(folder / "added_tokens.json"), folder / "added_tokens.json", usual);
}

}  // namespace

std::string one_line(std::string_view text, size_t columns) {
  std::string line;
  size_t used = 0;
  while (!text.empty()) {
    const auto [c, bytes] = first_code_point(text);
    const std::string_view character = text.substr(0, bytes);
    text.remove_prefix(bytes);
    const utf8proc_category_t category = category_of(c);
    const bool blank = is_space(c, category) || is_removed(c, category);
    if (blank && (line.empty() || line.back() == ' ')) continue;
    used += blank ? 1 : size_t(utf8proc_charwidth(c));
    if (used > columns) break;
    line += blank ? " " : character;
  }
  if (line.ends_with(' ')) line.pop_back();
  return line;
}

WordPiece::WordPiece(std::vector<std::string> vocabulary, const WordPieceOptions& options, const std::string& where)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    const std::string& token = vocabulary_[i];
    check<DataError>(!token.empty(), where, ": line ", i + 1, ": empty, expected a token");
    const auto [there, is_new] = ids_.emplace(token, int32_t(i));
    check<DataError>(is_new, where, ": line ", i + 1, ": token ", in_quotes(token), " is also in line ",
                     there->second + 1);
    longest_ = std::max(longest_, token.size());
  }
  const auto required = [&](const char* token) {
    const auto found = ids_.find(token);
    check<DataError>(found != ids_.end(), where, ": no token ", token,
                     "; expected the vocabulary of a BERT model, with [PAD], [UNK], [CLS] and [SEP]");
    return found->second;
  };
  pad_ = required("[PAD]");
  unknown_ = required("[UNK]");
  cls_ = required("[CLS]");
  sep_ = required("[SEP]");
  special_ = {pad_, unknown_, cls_, sep_};
  if (const auto mask = ids_.find("[MASK]"); mask != ids_.end()) special_.push_back(mask->second);
}

int32_t WordPiece::special_at(std::string_view text) const {
  for (const int32_t id : special_)
    if (text.starts_with(token(id))) return id;
  return -1;
}

std::vector<int32_t> WordPiece::tokenize(std::string_view text) const {
  std::vector<int32_t> tokens, word;
  size_t marks = 0;
  const auto end_word = [&] {
    add_pieces(word, tokens);
    word.clear();
    marks = 0;
  };
  for (size_t at = 0; at < text.size();) {
    if (const int32_t special = special_at(text.substr(at)); special >= 0) {
      end_word();
      tokens.push_back(special);
      at += token(special).size();
      continue;
    }
    const auto [c, bytes] = first_code_point(text.substr(at));
    at += bytes;
    const utf8proc_category_t category = category_of(c);
    const bool space = is_space(c, category);
    if (space) end_word();
    if (space || is_removed(c, category)) continue;
    const bool ideograph = options_.split_cjk && is_cjk(c);
    for (const int32_t part : parts_of(c, options_)) {
      const bool alone = ideograph || is_punctuation(part);
      if (alone) end_word();
      add_part(part, options_, word, marks);
      if (alone) end_word();
    }
  }
  end_word();
  return tokens;
}

std::vector<int32_t> WordPiece::encode(std::string_view text, int64_t max_tokens) const {
  std::vector<int32_t> ids = tokenize(text);
  if (max_tokens > 0) ids.resize(std::min(ids.size(), size_t(max_tokens) - 2));
  ids.insert(ids.begin(), cls_);
  ids.push_back(sep_);
  return ids;
}

void WordPiece::add_pieces(const std::vector<int32_t>& code_points, std::vector<int32_t>& tokens) const {
  std::string word;
  for (const int32_t c : code_points) word += utf8_of(c);
  const size_t before = tokens.size();
  for (size_t from = 0; from < word.size();) {
    const std::string prefix = from == 0 ? "" : "##";
    std::string piece = prefix + word.substr(from, longest_);
    while (piece.size() > prefix.size() && !ids_.contains(piece)) piece.pop_back();
    if (piece.size() == prefix.size() || code_points.size() > max_word_characters) {
      tokens.resize(before);
      tokens.push_back(unknown_);
      return;
    }
    tokens.push_back(ids_.at(piece));
    from += piece.size() - prefix.size();
  }
}

WordPiece read_wordpiece(const std::filesystem::path& folder) {
  check<UsageError>(!folder.empty(), "expected --model with a model's folder");
  const std::filesystem::path path = folder / "vocab.txt";
  const std::string where = (folder / "tokenizer_config.json").string();
  const std::string sentence_where = (folder / "sentence_bert_config.json").string();
  const std::string tokenizer_where = (folder / "tokenizer.json").string();
  const Json config = read_optional_object(where), sentence_config = read_optional_object(sentence_where);
  const Json tokenizer = read_optional_object(tokenizer_where);
  const auto part = [&](const char* key) {
    return tokenizer.value(key, Json()).is_object() ? tokenizer[key] : Json::object();
  };
  const auto flag = [&](const char* key, const char* of_tokenizer, bool absent) {
    expect_one_of(config, where, key, {true, false});
    const Json value = config.value(key, Json());
    if (!value.is_null()) return value.get<bool>();
    expect_one_of(part("normalizer"), concat(tokenizer_where, ": normalizer, as ", where, " has no ", key),
                  of_tokenizer, {absent});
    return absent;
  };
  const auto limit = [](const Json& object, const std::string& name, const char* key, int64_t absent) {
    const Json value = object.value(key, Json());
    if (value.is_null()) return absent;
    check<DataError>(value.is_number() && value >= 3, name, ": ", key, ": expected a number of at least 3, got ",
                     value.dump(-1, ' ', true).substr(0, 80));
    return int64_t(std::min(value.get<double>(), double(no_limit)));
  };
  WordPieceOptions options;
  options.lower_case = flag("do_lower_case", "lowercase", true);
  options.strip_accents = flag("strip_accents", "strip_accents", options.lower_case);
  options.split_cjk = flag("tokenize_chinese_chars", "handle_chinese_chars", true);
  check_tokens(folder);
  expect_one_of(part("normalizer"), tokenizer_where + ": normalizer", "type", {"BertNormalizer"});
  expect_one_of(part("model"), tokenizer_where + ": model", "max_input_chars_per_word", {max_word_characters});
  expect_one_of(config, where, "do_basic_tokenize", {true});
  expect_one_of(config, where, "clean_text", {true});
  expect_one_of(config, where, "padding_side", {"right"});
  expect_one_of(config, where, "truncation_side", {"right"});
  expect_one_of(config, where, "tokenizer_class", {"BertTokenizer", "BertTokenizerFast"});
  if (!options.lower_case) expect_one_of(sentence_config, sentence_where, "do_lower_case", {false});
  options.max_tokens = limit(config, where, "model_max_length", no_limit);
  options.max_tokens = limit(sentence_config, sentence_where, "max_seq_length", options.max_tokens);
  return {lines_of(read_file(path)), options, path.string()};
}

}  // namespace cairn::text_search
