#pragma once
// A safetensors file with one tensor, `embeddings` float32 [n, features], that is written row after row before n is
// known.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace cairn::text_search {

// What the file begins with. Its length is the same for every number of rows, so it can be written first, and again at
// the end; also with metadata that is longer by up to `spare` bytes, then with fewer of these.
std::string rows_header(const std::map<std::string, std::string>& metadata, int64_t rows, int64_t features,
                        size_t spare = 0);

}  // namespace cairn::text_search
