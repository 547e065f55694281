#pragma once
// Looks passages up in an index.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/text_search/index.h"
#include "apps/text_search/wordpiece.h"

namespace cairn::text_search {

struct Hit {
  double score;  // the cosine of the query's and the passage's embedding
  const Record* record;
};

// The passages nearest to a query's embedding (unit length), the best first; of equal ones the first. Of two that
// overlap, or have the same text, the better one alone.
std::vector<Hit> search(const Index& index, const std::vector<float>& query, int64_t top);

// What to show of a passage: the line that has the most words of the query, and what follows it. A word counts the less
// the more lines have it, and not at all with fewer than three bytes.
struct Excerpt {
  int64_t line;  // of the file
  std::string text;
};
Excerpt excerpt_of(const Record& record, std::string_view query, const WordPiece& tokenizer);

}  // namespace cairn::text_search
