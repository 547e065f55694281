#pragma once
// Looks passages up in an index.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/text_search/index.h"
#include "apps/text_search/passages.h"
#include "core/tensor.h"

namespace cairn::text_search {

struct Hit {
  float score;  // the cosine of the query's and the passage's embedding
  Record record;
};

// The passages nearest to a query's embedding (float32 [features], unit length), the best first; of equal ones the
// first. Of two that overlap, or have the same text, the better one alone, and none whose score is NaN. Memory: a block
// of rows.
std::vector<Hit> search(const Index& index, const Tensor& query, int64_t top);

// What to show of a passage: the line that has the most words of the query, and what follows it. A word counts the less
// the more lines have it, and not at all with fewer than three bytes.
struct Excerpt {
  int64_t line;  // of the file
  std::string text;
};
Excerpt excerpt_of(const Record& record, std::string_view query, const Tokenize& tokenize);

// Text as one line for a terminal, at most so many columns wide: white space and control characters become spaces, one
// for many.
std::string one_line(std::string_view text, size_t columns);

// A path as it is shortest to write: below the current folder without that.
std::string shown_path(const std::string& path, const std::filesystem::path& current);

}  // namespace cairn::text_search
