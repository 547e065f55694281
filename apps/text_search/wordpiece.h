#pragma once
// WordPiece, the tokenizer of BERT (Devlin et al. 2019): a text becomes words, and each word the longest pieces of it
// that the vocabulary has.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cairn::text_search {

// Each byte that is not part of UTF-8 becomes U+FFFD.
std::string valid_utf8(std::string_view text);
// Text as one line for a terminal, at most so many columns wide: white space, control and format characters become
// spaces, one for many.
std::string one_line(std::string_view text, size_t columns);

struct WordPieceOptions {
  bool lower_case = true;
  bool strip_accents = true;
  bool split_cjk = true;  // each Chinese character is a word
};

class WordPiece {
 public:
  // Token i is vocabulary[i]. `where` begins every message. Errors (DataError): [UNK], [CLS], [SEP] or [PAD] is
  // missing; a token is empty or listed twice.
  WordPiece(std::vector<std::string> vocabulary, const WordPieceOptions& options, const std::string& where);
  WordPiece(WordPiece&&) = default;

  // The tokens of any bytes, without [CLS] and [SEP]. What is not UTF-8 counts as U+FFFD. Time is linear in the text.
  std::vector<int32_t> tokenize(std::string_view text) const;
  // [CLS], the tokens, [SEP]: at most `max_tokens` (0: no limit; else at least 2) of them all in all, the last ones
  // left out.
  std::vector<int32_t> encode(std::string_view text, int64_t max_tokens = 0) const;

  int64_t size() const { return int64_t(vocabulary_.size()); }
  const std::string& token(int32_t id) const { return vocabulary_[size_t(id)]; }
  int32_t cls() const { return cls_; }
  int32_t sep() const { return sep_; }
  int32_t pad() const { return pad_; }

 private:
  // The special token that `text` begins with; -1 where there is none.
  int32_t special_at(std::string_view text) const;
  // Appends the longest pieces of a normalized word, or [UNK].
  void add_pieces(const std::vector<int32_t>& code_points, std::vector<int32_t>& tokens) const;

  std::vector<std::string> vocabulary_;
  WordPieceOptions options_;
  std::unordered_map<std::string_view, int32_t> ids_;  // of the vocabulary's strings
  size_t longest_ = 0;                                 // bytes of a token
  std::vector<int32_t> special_;                       // tokens that a text may contain as they are
  int32_t unknown_ = 0, cls_ = 0, sep_ = 0, pad_ = 0;
};

// That of a model's folder: vocab.txt, a token a line, and, where it is there, tokenizer_config.json (do_lower_case,
// strip_accents, tokenize_chinese_chars). Errors: UsageError: no folder is given; DataError: a file is missing or
// damaged.
WordPiece read_wordpiece(const std::filesystem::path& folder);

}  // namespace cairn::text_search
