#pragma once
// Questions about passages: a passage is a list of entries, and the answer is the name of one of them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/text_search/wordpiece.h"

namespace cairn::answers {

struct Question {
  std::vector<int32_t> tokens;          // [CLS] question [SEP] passage [SEP]; an entry is: name, colon, description
  std::vector<int64_t> entries;         // where each entry begins, then where the passage ends
  size_t right = 0;                     // the entry that is asked for
  int64_t begin = 0, end = 0;           // the tokens of its name: the answer
  double overlap = 0, idf_overlap = 0;  // how often word overlap chooses the right entry (debian_questions.py)
  std::string source;                   // questions of one source are alike
};

// The questions of a part (train, dev, test) in a file of debian_questions.py. Cuts a question with its passage to
// `max_tokens`. Lines on standard error say how many questions are left out, because they are empty or too long, or
// their answer is cut off, and how many have more than `answer_tokens` in their answer. Errors (DataError): the file
// cannot be read or has another form; no question is left.
std::vector<Question> read_questions(const std::string& file, const std::string& part,
                                     const text_search::WordPiece& tokenizer, int64_t max_tokens,
                                     int64_t answer_tokens);

}  // namespace cairn::answers
