#pragma once
// The tokens of a text file's lines.
#include <cstdint>
#include <functional>
#include <string>

#include "apps/text_search/wordpiece.h"

namespace cairn::text_search {

// Calls `token` for each token of each line, [CLS] first and [SEP] last, and `line_end` behind each line. A line has at
// most `max_tokens` tokens (0: no limit; else at least 2), the last ones left out. Lines end with a line feed; the last
// one may lack it. `file` may be any file that can be read once, and "-" is standard input. Memory does not depend on
// the file's size, nor on its lines'. Error (DataError): it cannot be read.
void tokenize_lines(const WordPiece& tokenizer, const std::string& file, int64_t max_tokens,
                    const std::function<void(int32_t id)>& token, const std::function<void()>& line_end);

// How many lines a regular file has; 0 for any other, which can be read once alone. Error (DataError): it cannot be
// read.
int64_t count_lines(const std::string& file);

}  // namespace cairn::text_search
