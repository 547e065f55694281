// For every code point of Unicode 8 the tokens are those of the `tokenizers` package (its BertNormalizer,
// BertPreTokenizer and WordPiece). They may differ for code points assigned later: that package has the categories of
// Unicode 8, so a newer accent, punctuation or format character counts as a letter there. Here it has its category.
#include "apps/text_search/wordpiece.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "apps/common/run_folder.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

constexpr size_t max_vocabulary = size_t{1} << 20, max_vocabulary_bytes = size_t{1} << 23;
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

// The canonical combining class: 0 is a starter; other marks behind a starter are sorted by it.
int combining_class(int32_t c) { return utf8proc_get_property(c)->combining_class; }

bool is_space(int32_t c, utf8proc_category_t category) {
  return c == '\t' || c == '\n' || c == '\r' || (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

// Control and format characters, private use.
bool is_removed(int32_t c, utf8proc_category_t category) {
  return category >= UTF8PROC_CATEGORY_CC || c == replacement_character;
}

constexpr bool is_ascii_punctuation(int32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

bool is_punctuation(int32_t c) {
  const utf8proc_category_t category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) || is_ascii_punctuation(c);
}

// The blocks of CJK ideographs, as `tokenizers` has them: it leaves out U+2B820 to U+2B91F.
bool is_cjk(int32_t c) {
  static constexpr std::pair<int32_t, int32_t> blocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                                           {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                                           {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(blocks), std::end(blocks),
                     [c](const auto& block) { return c >= block.first && c <= block.second; });
}

// The first code point of `text`, which is not empty, and how many bytes it has. What is not UTF-8 is U+FFFD of one
// byte.
std::pair<int32_t, size_t> first_code_point(std::string_view text) {
  utf8proc_int32_t c = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      utf8proc_ssize_t(std::min<size_t>(text.size(), 4)), &c);
  return bytes > 0 ? std::pair(int32_t(c), size_t(bytes)) : std::pair(replacement_character, size_t{1});
}

// The length that a character with this first byte should have.
size_t utf8_length(unsigned char first) { return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4; }

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto [c, bytes] = first_code_point(text);
    if (c == replacement_character && bytes == 1) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

WordPiece::WordPiece(std::vector<std::string> vocabulary, const WordPieceOptions& options, const std::string& where)
    : vocabulary_(std::move(vocabulary)), options_(options), ids_{-1} {
  check<DataError>(vocabulary_.size() <= max_vocabulary, where, ": more than ", max_vocabulary,
                   " tokens; is this a vocabulary?");
  size_t bytes = 0;
  for (const std::string& token : vocabulary_) bytes += token.size();
  check<DataError>(bytes <= max_vocabulary_bytes, where, ": tokens of ", bytes, " bytes, expected at most ",
                   max_vocabulary_bytes, "; is this a vocabulary?");
  edges_.resize(std::bit_ceil(2 * (bytes + 2)));
  continuation_ = insert("##");
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    const std::string& token = vocabulary_[i];
    check<DataError>(!token.empty(), where, ": line ", i + 1, ": empty, expected a token");
    check<DataError>(is_utf8(token), where, ": line ", i + 1, ": token ", in_quotes(token), " is not UTF-8");
    int32_t& id = ids_[insert(token)];
    check<DataError>(id < 0, where, ": line ", i + 1, ": token ", in_quotes(token), " is that of line ", id + 1,
                     " too");
    id = int32_t(i);
  }
  const auto required = [&](const char* token) {
    const int32_t id = ids_[find(token)];
    check<DataError>(id >= 0, where, ": no token ", token,
                     "; expected the vocabulary of a BERT model, with [PAD], [UNK], [CLS] and [SEP]");
    return id;
  };
  pad_ = required("[PAD]"), unknown_ = required("[UNK]"), cls_ = required("[CLS]"), sep_ = required("[SEP]");
  special_ = {pad_, unknown_, cls_, sep_};
  if (const int32_t mask = ids_[find("[MASK]")]; mask >= 0) special_.push_back(mask);
}

size_t WordPiece::slot(uint32_t key) const {
  const size_t mask = edges_.size() - 1;
  size_t i = size_t(key * uint64_t{0x9E3779B97F4A7C15} >> 32) & mask;
  while (edges_[i].child != 0 && edges_[i].key != key) i = (i + 1) & mask;
  return i;
}

uint32_t WordPiece::child(uint32_t node, char byte) const {
  return edges_[slot(node << 8 | static_cast<unsigned char>(byte))].child;
}

uint32_t WordPiece::find(std::string_view text) const {
  uint32_t node = 0;
  for (const char byte : text)
    if ((node = child(node, byte)) == 0) break;
  return node;
}

uint32_t WordPiece::insert(std::string_view text) {
  uint32_t node = 0;
  for (const char byte : text) {
    const uint32_t key = node << 8 | static_cast<unsigned char>(byte);
    Edge& edge = edges_[slot(key)];
    if (edge.child == 0) {
      edge = {key, uint32_t(ids_.size())};
      ids_.push_back(-1);
    }
    node = edge.child;
  }
  return node;
}

int32_t WordPiece::special_at(std::string_view text, bool& open) const {
  for (const int32_t id : special_) {
    const std::string& token = vocabulary_[size_t(id)];
    if (text.starts_with(token)) return id;
    open = open || std::string_view(token).starts_with(text);
  }
  return -1;
}

void WordPiece::add_pieces(std::string_view word, size_t begin, size_t end, std::vector<Token>& tokens) const {
  const size_t before = tokens.size();
  for (size_t from = 0, to = 0; from < word.size(); from = to) {
    int32_t id = -1;
    uint32_t node = from == 0 ? 0 : continuation_;
    for (size_t i = from; i < word.size() && (node = child(node, word[i])) != 0; ++i)
      if (ids_[node] >= 0) id = ids_[node], to = i + 1;
    if (id < 0) {
      tokens.resize(before);
      tokens.push_back({unknown_, begin, end});
      return;
    }
    tokens.push_back({id, begin, end});
  }
}

std::vector<WordPiece::Token> WordPiece::tokenize(std::string_view text) const {
  std::vector<Token> tokens;
  Stream stream(*this);
  stream.add(text, tokens);
  stream.end(tokens);
  return tokens;
}

std::vector<int32_t> WordPiece::encode(std::string_view text, int64_t max_tokens) const {
  constexpr size_t piece = 4096;
  check<UsageError>(max_tokens == 0 || max_tokens >= 2, "WordPiece: at most ", max_tokens,
                    " tokens, expected 2 or more");
  std::vector<int32_t> ids{cls_};
  std::vector<Token> tokens;
  Stream stream(*this);
  const auto take = [&] {
    for (const Token& token : tokens) ids.push_back(token.id);
    tokens.clear();
  };
  for (size_t begin = 0; begin < text.size() && (max_tokens == 0 || int64_t(ids.size()) < max_tokens); begin += piece)
    stream.add(text.substr(begin, piece), tokens), take();
  stream.end(tokens), take();
  if (max_tokens > 0) ids.resize(std::min(ids.size(), size_t(max_tokens) - 1));
  ids.push_back(sep_);
  return ids;
}

void WordPiece::Stream::add(std::string_view piece, std::vector<Token>& tokens) {
  if (!rest_.empty()) {
    const size_t before = rest_.size();
    rest_ += piece.substr(0, 8);  // more than enough to decide about it
    const size_t done = read(rest_, false, tokens);
    if (done < before) {  // the piece was shorter
      rest_.erase(0, done);
      return;
    }
    piece.remove_prefix(done - before);
  }
  rest_ = piece.substr(read(piece, false, tokens));
}

void WordPiece::Stream::end(std::vector<Token>& tokens) {
  read(rest_, true, tokens);
  end_word(tokens);
  rest_.clear();
  position_ = 0;
}

size_t WordPiece::Stream::read(std::string_view text, bool last, std::vector<Token>& tokens) {
  enum Kind : uint8_t { letter, space, removed, punctuation };
  static constexpr auto kinds = [] {
    std::array<Kind, 128> table{};
    for (size_t c = 0; c < 128; ++c)
      table[c] = c == ' ' || c == '\t' || c == '\n' || c == '\r' ? space
                 : c < ' ' || c == 127                           ? removed
                 : is_ascii_punctuation(int32_t(c))              ? punctuation
                                                                 : letter;
    return table;
  }();
  const bool lower_case = tokenizer_.options_.lower_case;
  size_t i = 0;
  while (i < text.size()) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first >= 128) {
      if (!last && text.size() - i < utf8_length(first)) break;
      const auto [c, bytes] = first_code_point(text.substr(i));
      add_code_point(c, {position_ + i, position_ + i + bytes}, tokens);
      i += bytes;
      continue;
    }
    if (first == '[') {
      bool open = false;
      const int32_t id = tokenizer_.special_at(text.substr(i), open);
      if (id >= 0) {
        end_word(tokens);
        const size_t bytes = tokenizer_.token(id).size();
        tokens.push_back({id, position_ + i, position_ + i + bytes});
        i += bytes;
        continue;
      }
      if (open && !last) break;
    }
    const Place place{position_ + i, position_ + i + 1};
    switch (kinds[first]) {
      case letter:
        if (characters_ < max_word_characters)
          word_ += lower_case && first >= 'A' && first <= 'Z' ? char(first - 'A' + 'a') : char(first);
        extend_word(place);
        break;
      case punctuation: add_normalized(first, place, tokens); break;
      case space: end_word(tokens); break;
      case removed: break;
    }
    ++i;
  }
  position_ += i;
  return i;
}

void WordPiece::Stream::add_code_point(int32_t c, Place place, std::vector<Token>& tokens) {
  const utf8proc_category_t category = category_of(c);
  if (is_space(c, category)) return end_word(tokens);
  if (is_removed(c, category)) return;
  const bool alone = tokenizer_.options_.split_cjk && is_cjk(c);
  if (alone) end_word(tokens);
  if (tokenizer_.options_.strip_accents)
    strip(c, place, tokens);
  else
    lower(c, place, tokens);
  if (alone) end_word(tokens);
}

void WordPiece::Stream::strip(int32_t c, Place place, std::vector<Token>& tokens) {
  std::array<utf8proc_int32_t, 16> parts{};  // the longest canonical decomposition has 4
  int unused = 0;
  const auto count =
      utf8proc_decompose_char(c, parts.data(), utf8proc_ssize_t(parts.size()), UTF8PROC_DECOMPOSE, &unused);
  for (size_t i = 0; i < std::min(size_t(count), parts.size()); ++i) {
    if (category_of(parts[i]) != UTF8PROC_CATEGORY_MN) {
      lower(parts[i], place, tokens);
      continue;
    }
    if (combining_class(parts[i]) == 0) reorder_from_ = word_.size();
    if (characters_ > 0) place_.end = place.end;
  }
}

void WordPiece::Stream::lower(int32_t c, Place place, std::vector<Token>& tokens) {
  const bool lower_case = tokenizer_.options_.lower_case;
  if (lower_case && c == 0x130) {  // the only one whose lower case is two: i and a dot above
    add_normalized('i', place, tokens);
    add_normalized(0x307, place, tokens);
  } else {
    add_normalized(lower_case ? utf8proc_tolower(c) : c, place, tokens);
  }
}

void WordPiece::Stream::add_normalized(int32_t c, Place place, std::vector<Token>& tokens) {
  const bool alone = is_punctuation(c);
  if (alone) end_word(tokens);
  if (characters_ < max_word_characters) {
    // NFD sorts marks behind a starter. Accents are gone already, but not every mark is one of them.
    size_t at = word_.size();
    const int order = tokenizer_.options_.strip_accents ? combining_class(c) : 0;
    while (order > 0 && at > reorder_from_) {
      size_t before = at - 1;
      while ((word_[before] & 0xC0) == 0x80) --before;
      if (combining_class(first_code_point(std::string_view(word_).substr(before)).first) <= order) break;
      at = before;
    }
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto count = utf8proc_encode_char(c, bytes.data());
    word_.insert(at, reinterpret_cast<const char*>(bytes.data()), size_t(count));
  }
  extend_word(place);
  if (alone) end_word(tokens);
}

void WordPiece::Stream::extend_word(Place place) {
  if (characters_++ == 0) place_.begin = place.begin;
  place_.end = place.end;
}

void WordPiece::Stream::end_word(std::vector<Token>& tokens) {
  if (characters_ > max_word_characters)
    tokens.push_back({tokenizer_.unknown_, place_.begin, place_.end});
  else if (characters_ > 0)
    tokenizer_.add_pieces(word_, place_.begin, place_.end, tokens);
  word_.clear();
  characters_ = reorder_from_ = 0;
}

void expect_model_file(const std::filesystem::path& folder, const char* name) {
  constexpr const char* files = "config.json, model.safetensors and vocab.txt";
  std::error_code error;
  check<DataError>(!is_there(folder) || std::filesystem::is_directory(folder, error), folder,
                   ": is a file; expected a model's folder, with ", files);
  check<DataError>(is_there(folder / name), folder / name, ": cannot be opened: it is missing; a model's folder has ",
                   files);
}

WordPiece read_wordpiece(const std::filesystem::path& folder) {
  expect_model_file(folder, "vocab.txt");
  const std::filesystem::path path = folder / "vocab.txt", config_path = folder / "tokenizer_config.json";
  check<DataError>(FileReader(path).size() <= max_vocabulary_bytes, path, ": more than ", max_vocabulary_bytes,
                   " bytes; is this a vocabulary?");
  const std::string text = read_file(path);
  std::vector<std::string> vocabulary;
  for (size_t begin = 0, end; begin < text.size() && vocabulary.size() <= max_vocabulary; begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    vocabulary.push_back(text.substr(begin, end - begin));
    if (vocabulary.back().ends_with('\r')) vocabulary.back().pop_back();
  }
  WordPieceOptions options;
  if (!is_there(config_path)) return {std::move(vocabulary), options, path.string()};
  check<DataError>(FileReader(config_path).size() <= max_vocabulary_bytes, config_path, ": more than ",
                   max_vocabulary_bytes, " bytes; is this a tokenizer's configuration?");
  const nlohmann::ordered_json config = read_json(config_path);
  check<DataError>(config.is_object(), config_path, ": expected an object, got ", config.type_name());
  const auto read = [&](const char* key, bool absent) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return absent;
    check<DataError>(found->is_boolean(), config_path, ": ", key, ": expected true, false or null, got ",
                     found->type_name());
    return found->get<bool>();
  };
  options.lower_case = read("do_lower_case", true);
  options.strip_accents = read("strip_accents", options.lower_case);
  options.split_cjk = read("tokenize_chinese_chars", true);
  return {std::move(vocabulary), options, path.string()};
}

}  // namespace cairn::text_search
