#include "apps/text_search/passages.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace cairn::text_search {
namespace {

constexpr size_t piece_bytes = 8192;

// Where the next piece of a text ends that is tokenized by itself: behind a line, else behind a space, else between
// characters.
size_t piece_end(std::string_view text, size_t begin) {
  if (text.size() - begin <= piece_bytes) return text.size();
  const std::string_view piece = text.substr(begin, piece_bytes);
  for (const char* separators : {"\n", " \t\r\f\v"})
    if (const size_t found = piece.find_last_of(separators); found != std::string_view::npos) return begin + found + 1;
  size_t end = begin + piece_bytes;
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; ++i) --end;
  return end;
}

}  // namespace

PassageCutter::PassageCutter(std::string_view text, Tokenize tokenize, int64_t max_tokens)
    : text_(text), tokenize_(std::move(tokenize)), max_tokens_(size_t(max_tokens)) {
  check(max_tokens >= 1, "passages: expected at least 1 token, got ", max_tokens);
}

// Reads until there is a whole passage and one token more, or no more text.
void PassageCutter::read_tokens() {
  while (tokens_.size() <= max_tokens_ && read_ < text_.size()) {
    const size_t begin = read_;
    read_ = piece_end(text_, begin);
    size_t before_end = tokens_.empty() ? line_begin_ : tokens_.back().end;
    size_t before_begin = tokens_.empty() ? std::string_view::npos : tokens_.back().begin;
    for (const WordPiece::Token& token : tokenize_(text_.substr(begin, read_ - begin))) {
      const size_t at = begin + token.begin, end = begin + token.end;
      Cut cut = Cut::within_word;
      if (at != before_begin) {
        const std::string_view between = text_.substr(before_end, at - before_end);
        const auto lines = std::count(between.begin(), between.end(), '\n');
        cut = lines > 1          ? Cut::at_paragraph
              : lines == 1       ? Cut::at_line
              : !between.empty() ? Cut::at_space
                                 : Cut::between_words;
      }
      const std::string_view passed = text_.substr(line_begin_, at - line_begin_);
      line_ += std::count(passed.begin(), passed.end(), '\n');
      line_begin_ = at;
      tokens_.push_back({token.id, at, end, line_, cut});
      before_begin = at, before_end = end;
    }
  }
}

// How many of the tokens fit into the next passage.
size_t PassageCutter::find_most() const {
  size_t most = std::min(tokens_.size(), max_tokens_);
  while (most > 1 && tokens_[most - 1].end - tokens_[0].begin > max_passage_bytes) --most;
  return most;
}

// How many of them it has. It has at least one that the last one did not.
size_t PassageCutter::find_end(size_t most) const {
  if (most == tokens_.size()) return most;
  for (const Cut wanted : {Cut::at_paragraph, Cut::at_line, Cut::at_space, Cut::between_words})
    for (size_t end = most; end > (wanted == Cut::between_words ? repeated_ : std::max(repeated_, most / 2)); --end)
      if (tokens_[end].cut >= wanted) return end;
  return most;
}

// Where the passage behind one of `end` tokens begins. No token is in more than two passages.
size_t PassageCutter::find_next_begin(size_t end) const {
  const size_t first = std::max(repeated_, end - std::min(size_t(max_overlap), end / 4));
  for (const Cut wanted : {Cut::at_line, Cut::at_space, Cut::between_words})
    for (size_t begin = first; begin < end; ++begin)
      if (tokens_[begin].cut >= wanted) return begin;
  return end;
}

bool PassageCutter::next(Passage& passage) {
  read_tokens();
  if (tokens_.empty()) return false;
  size_t most = find_most();
  if (most <= repeated_) {  // what is new is far behind
    drop(std::exchange(repeated_, 0));
    most = find_most();
  }
  const size_t end = find_end(most);
  passage.tokens.clear();
  for (size_t i = 0; i < end; ++i) passage.tokens.push_back(tokens_[i].id);
  passage.begin = tokens_[0].begin, passage.end = tokens_[end - 1].end;
  passage.line = tokens_[0].line, passage.last_line = tokens_[end - 1].line;
  passage.last = end == tokens_.size();
  const size_t next_begin = passage.last ? end : find_next_begin(end);
  repeated_ = end - next_begin;
  drop(next_begin);
  return true;
}

void PassageCutter::drop(size_t tokens) { tokens_.erase(tokens_.begin(), tokens_.begin() + std::ptrdiff_t(tokens)); }

}  // namespace cairn::text_search
