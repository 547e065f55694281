#pragma once
// WordPiece, the tokenizer of BERT (Devlin et al. 2019). It splits a text into words. From each word it takes the
// longest prefix that is in the vocabulary, then the same from the rest of the word.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cairn::text_search {

// The text as one line of at most `columns` columns for a terminal. White space, control and format characters become
// one space.
std::string one_line(std::string_view text, size_t columns);

struct WordPieceOptions {
  bool lower_case = true;
  bool strip_accents = true;
  bool split_cjk = true;         // each Chinese character is a word of its own
  int64_t max_tokens = 1 << 20;  // the most that the model is meant for, with [CLS] and [SEP]
};

class WordPiece {
 public:
  // Token i is vocabulary[i]. Messages begin with `where`. Errors (DataError): [UNK], [CLS], [SEP] or [PAD] is
  // missing; a token is empty or listed twice.
  WordPiece(std::vector<std::string> vocabulary, const WordPieceOptions& options, const std::string& where);
  WordPiece(WordPiece&&) = default;

  // The tokens of any bytes, without [CLS] and [SEP]. Invalid UTF-8 counts as U+FFFD. Takes linear time.
  std::vector<int32_t> tokenize(std::string_view text) const;
  // [CLS], the tokens, [SEP]. Drops the last tokens if there are more than `max_tokens` in all (0: no limit; else at
  // least 2).
  std::vector<int32_t> encode(std::string_view text, int64_t max_tokens = 0) const;

  int64_t size() const { return int64_t(vocabulary_.size()); }
  const std::string& token(int32_t id) const { return vocabulary_[size_t(id)]; }
  int32_t cls() const { return cls_; }
  int32_t sep() const { return sep_; }
  int32_t pad() const { return pad_; }
  int64_t max_tokens() const { return options_.max_tokens; }

 private:
  // The special token that `text` begins with, or -1.
  int32_t special_at(std::string_view text) const;
  // Appends the tokens of a normalized word, or [UNK].
  void add_pieces(const std::vector<int32_t>& code_points, std::vector<int32_t>& tokens) const;

  std::vector<std::string> vocabulary_;
  WordPieceOptions options_;
  std::unordered_map<std::string_view, int32_t> ids_;  // the keys are views of vocabulary_
  size_t longest_ = 0;                                 // bytes of the longest token
  std::vector<int32_t> special_;                       // recognized where a text contains their names
  int32_t unknown_ = 0, cls_ = 0, sep_ = 0, pad_ = 0;
};

// Reads a model's folder: vocab.txt, with one token per line, and, if they exist, tokenizer_config.json (do_lower_case,
// strip_accents, tokenize_chinese_chars, model_max_length) and sentence_bert_config.json (max_seq_length, which counts
// more). Errors: no folder is given (UsageError); a file is missing or damaged, or asks for other tokens than these,
// as added_tokens.json, special_tokens_map.json and tokenizer.json may (DataError).
WordPiece read_wordpiece(const std::filesystem::path& folder);

}  // namespace cairn::text_search
