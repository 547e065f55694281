#pragma once
// An index: one safetensors file. `embeddings` float32 [n, features] has a row of unit length for each passage,
// `passages` uint8 has a JSON object for each, a line each, and `ends` int64 [n] tells where the lines end. The
// metadata has the settings, and whether the index is complete.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nn/io/safetensors.h"

namespace cairn::text_search {

// What the embeddings depend on besides the texts, and how the model is opened again.
struct IndexSettings {
  std::string fingerprint;  // of the model's files
  std::string model;        // its folder
  std::string attention;
  int64_t seed = 1, passage_tokens = 256;

  // Do equal texts have equal embeddings?
  bool agrees_with(const IndexSettings& other) const;
};

struct Record {
  std::string path;                 // absolute
  int64_t line = 1, last_line = 1;  // of the file, from 1
  int64_t begin = 0, end = 0;       // the passage's bytes in the file
  std::string text;                 // UTF-8
  std::vector<float> row;           // its embedding; empty: it has none yet
};

struct Index {
  IndexSettings settings;
  bool complete = false;  // or was the run stopped that wrote it?
  std::vector<Record> records;
};

// Errors (DataError): not an index, or a damaged one; as read_safetensors; a folder, as indexes of older versions are.
Index read_index(const std::filesystem::path& file);
Index parse_index(const TensorFile& file);

// Writes the records that have a row. The whole file, or the old one stays. Error: it cannot be written.
void write_index(const std::filesystem::path& file, const Index& index);

}  // namespace cairn::text_search
