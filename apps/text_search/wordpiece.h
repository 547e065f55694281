#pragma once
// WordPiece, the tokenizer of BERT (Devlin et al. 2019): a text becomes words, and each word the longest pieces of it
// that the vocabulary has.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::text_search {

bool is_utf8(std::string_view text);

struct WordPieceOptions {
  bool lower_case = true;
  bool strip_accents = true;
  bool split_cjk = true;  // each Chinese character is a word
};

class WordPiece {
 public:
  // A token, and the bytes of the text that its word stands at.
  struct Token {
    int32_t id;
    size_t begin, end;
  };

  // The tokens of a text that comes in pieces, cut anywhere, also within a character: those of the whole text. Memory
  // does not grow with the text. The tokenizer must outlive it.
  class Stream {
   public:
    explicit Stream(const WordPiece& tokenizer) : tokenizer_(tokenizer) {}
    // The next bytes. Appends the tokens of the words that have ended.
    void add(std::string_view piece, std::vector<Token>& tokens);
    // The text ends. Appends the last tokens. Another text may begin, at byte 0.
    void end(std::vector<Token>& tokens);

   private:
    // The bytes of the text that a character stands at.
    struct Place {
      size_t begin, end;
    };
    // Reads all but the beginning of a character or of a special token that the next piece may complete; unless it is
    // the `last` piece, then all. Returns how many bytes were read.
    size_t read(std::string_view text, bool last, std::vector<Token>& tokens);
    // The steps of normalization: clean and split, strip accents, lower case. The last one makes words.
    void add_code_point(int32_t c, Place place, std::vector<Token>& tokens);
    void strip(int32_t c, Place place, std::vector<Token>& tokens);
    void lower(int32_t c, Place place, std::vector<Token>& tokens);
    void add_normalized(int32_t c, Place place, std::vector<Token>& tokens);
    void extend_word(Place place);
    void end_word(std::vector<Token>& tokens);

    const WordPiece& tokenizer_;
    std::string rest_;         // bytes that were not read yet
    size_t position_ = 0;      // of the next byte to read
    std::string word_;         // normalized, without what is behind its 100th character
    size_t characters_ = 0;    // of the word, all of them
    Place place_{};            // of the word
    size_t reorder_from_ = 0;  // no mark moves to before this byte of the word
  };

  // Token i is vocabulary[i]. `where` begins every message. Errors (DataError): [UNK], [CLS], [SEP] or [PAD] is
  // missing; a token is empty, listed twice or not UTF-8; more than 2^20 tokens, or more than 2^23 bytes.
  WordPiece(std::vector<std::string> vocabulary, const WordPieceOptions& options, const std::string& where);

  // The tokens of any bytes, without [CLS] and [SEP]. What is not UTF-8 counts as U+FFFD. Time is linear in the text.
  std::vector<Token> tokenize(std::string_view text) const;
  // [CLS], the tokens, [SEP]: at most `max_tokens` (0: no limit; else at least 2) of them all in all, the last ones
  // left out.
  std::vector<int32_t> encode(std::string_view text, int64_t max_tokens = 0) const;

  const WordPieceOptions& options() const { return options_; }
  int64_t size() const { return int64_t(vocabulary_.size()); }
  const std::string& token(int32_t id) const { return vocabulary_[size_t(id)]; }
  int32_t unknown() const { return unknown_; }
  int32_t cls() const { return cls_; }
  int32_t sep() const { return sep_; }
  int32_t pad() const { return pad_; }

 private:
  // The vocabulary as a trie: nodes are numbered from the root, 0. Its edges are a hash table with open addressing.
  struct Edge {
    uint32_t key = 0;    // 256 * the node that it leaves + its byte
    uint32_t child = 0;  // 0: there is no edge here
  };
  size_t slot(uint32_t key) const;
  uint32_t child(uint32_t node, char byte) const;
  // The node that `text` leads to; 0 where there is none.
  uint32_t find(std::string_view text) const;
  // The same; makes the nodes that are missing.
  uint32_t insert(std::string_view text);
  // The special token that `text` begins with; -1 where there is none. Sets `open` if more text could make one of it.
  int32_t special_at(std::string_view text, bool& open) const;
  // Appends the longest pieces of a word of normalized text, or [UNK].
  void add_pieces(std::string_view word, size_t begin, size_t end, std::vector<Token>& tokens) const;

  std::vector<std::string> vocabulary_;
  WordPieceOptions options_;
  std::vector<Edge> edges_;       // a power of two of them
  std::vector<int32_t> ids_;      // of the token that ends at a node; -1: none
  std::vector<int32_t> special_;  // tokens that a text may contain as they are
  uint32_t continuation_ = 0;     // the node of "##", which pieces within a word begin with
  int32_t unknown_ = 0, cls_ = 0, sep_ = 0, pad_ = 0;
};

// Error (DataError): a model's folder is none, or lacks the file of this name.
void expect_model_file(const std::filesystem::path& folder, const char* name);

// That of a model's folder: vocab.txt, a token a line, and, where it is there, tokenizer_config.json (do_lower_case,
// strip_accents, tokenize_chinese_chars). Errors (DataError): a file is missing or damaged.
WordPiece read_wordpiece(const std::filesystem::path& folder);

}  // namespace cairn::text_search
