#pragma once
// A text, cut into passages that overlap and that a model can read whole.
#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <vector>

#include "apps/text_search/wordpiece.h"

namespace cairn::text_search {

using Tokenize = std::function<std::vector<WordPiece::Token>(std::string_view text)>;

// At most this many bytes of a text are one passage, whatever its tokens.
inline constexpr size_t max_passage_bytes = 16384;
// A passage repeats at most this many tokens of the one before.
inline constexpr int64_t max_overlap = 32;

struct Passage {
  std::vector<int32_t> tokens;  // without [CLS] and [SEP]
  size_t begin, end;            // bytes of the text
  int64_t line, last_line;      // from 1
  bool last;                    // of the text
};

// The passages of one text, one after another; every token is in one of them. A passage ends, where it can, behind a
// paragraph in its second half, else behind a line there, else between words. The next one begins up to 32 tokens
// earlier (at most a quarter of the passage), at a line's beginning if there is one, else at a word's.
class PassageCutter {
 public:
  // `max_tokens` of a passage, at least 1; `text` lives as long as this object. The text is tokenized piece by piece,
  // so memory does not grow with its length.
  PassageCutter(std::string_view text, Tokenize tokenize, int64_t max_tokens);

  // The next passage; false where there are no more tokens.
  bool next(Passage& passage);

 private:
  // How good it is to cut in front of a token.
  enum class Cut { within_word, between_words, at_space, at_line, at_paragraph };
  struct Token {
    int32_t id;
    size_t begin, end;
    int64_t line;
    Cut cut;
  };
  void read_tokens();
  size_t find_most() const;
  size_t find_end(size_t most) const;
  size_t find_next_begin(size_t end) const;
  void drop(size_t tokens);

  std::string_view text_;
  Tokenize tokenize_;
  size_t max_tokens_;
  std::deque<Token> tokens_;  // from the beginning of the next passage on
  size_t repeated_ = 0;       // of these, how many the last passage had
  size_t read_ = 0;           // bytes of the text that are tokenized
  size_t line_begin_ = 0;     // where the lines are counted up to
  int64_t line_ = 1;
};

}  // namespace cairn::text_search
