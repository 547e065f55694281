#pragma once
// An index of passages, and how to search it. It is one safetensors file: `embeddings` float32 [n, features] has a row
// of unit length for each passage, and `passages` uint8 has a line with a JSON object for each. The metadata holds the
// settings, and whether the index is complete.
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
  int64_t line = 1, last_line = 1;  // in the file, from 1
  std::string text;                 // UTF-8
  Tensor row;                       // the embedding, float32; undefined: not computed yet
};

struct Index {
  // The rows depend on the texts and on these: a hash of the model's files, the variant, the seed of its hashing.
  std::string fingerprint, attention;
  int64_t seed = 1;
  std::string model;      // the model's folder
  bool complete = false;  // false: the run that wrote it was stopped
  std::vector<Record> records;
};

// Errors (DataError): not an index; a damaged one; as read_safetensors.
Index read_index(const std::filesystem::path& file);
Index parse_index(const TensorReader& file);

// Writes the records that have a row. Replaces the file as a whole or not at all. Error: it cannot be written.
void write_index(const std::filesystem::path& file, const Index& index);

struct Hit {
  double score;  // cosine of the query's and the passage's embedding
  const Record* record;
};

// The passages nearest to a query's embedding (unit length), best first; among equals, in the order of the index.
// Passages with the same text appear once.
std::vector<Hit> search(const Index& index, const std::vector<float>& query, int64_t top);

// The part of a passage to show. It begins at the line that shares most tokens with the query, weighted by their
// length in bytes, because long words say more.
struct Excerpt {
  int64_t line;  // in the file
  std::string text;
};
Excerpt excerpt_of(const Record& record, std::string_view query, const WordPiece& tokenizer);

}  // namespace cairn::text_search
