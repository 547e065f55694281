#pragma once
// An index, and how it is searched. It is one safetensors file. `embeddings` float32 [n, features] has a row of unit
// length for each passage, and `passages` uint8 a JSON object for each, a line each. The metadata has the settings, and
// whether the index is complete.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/text_search/wordpiece.h"
#include "nn/io/safetensors.h"

namespace cairn::text_search {

struct Record {
  std::string path;                 // absolute
  int64_t line = 1, last_line = 1;  // of the file, from 1
  std::string text;                 // UTF-8
  std::vector<float> row;           // its embedding; empty: it has none yet
};

struct Index {
  // What the rows depend on besides the texts: a hash of the model's files, the variant, the seed of its hashing.
  std::string fingerprint, attention;
  int64_t seed = 1;
  std::string model;      // the model's folder
  bool complete = false;  // or was the run stopped that wrote it?
  std::vector<Record> records;
};

// Errors (DataError): not an index, or a damaged one; as read_safetensors; a folder, as indexes of older versions are.
Index read_index(const std::filesystem::path& file);
Index parse_index(const TensorFile& file);

// Writes the records that have a row. The whole file, or the old one stays. Error: it cannot be written.
void write_index(const std::filesystem::path& file, const Index& index);

struct Hit {
  double score;  // the cosine of the query's and the passage's embedding
  const Record* record;
};

// The passages nearest to a query's embedding (unit length), the best first; of equal ones the first. Of those with the
// same text one alone.
std::vector<Hit> search(const Index& index, const std::vector<float>& query, int64_t top);

// What to show of a passage: the line that has the most of the query's tokens, counted by their bytes, because long
// words say more; and what follows it.
struct Excerpt {
  int64_t line;  // of the file
  std::string text;
};
Excerpt excerpt_of(const Record& record, std::string_view query, const WordPiece& tokenizer);

}  // namespace cairn::text_search
