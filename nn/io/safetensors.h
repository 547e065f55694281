#pragma once
// Named tensors in a file, in the format of https://github.com/huggingface/safetensors: eight bytes with the size of a
// header, the header in JSON (name -> dtype, shape, range of bytes), and the tensors' numbers, little-endian,
// row-major, one behind the other without gaps. No code is ever run and no number trusted: a file from anywhere may be
// read.
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace cairn {

class Xxh128;

struct TensorFile {
  std::vector<std::pair<std::string, Tensor>> tensors;  // in the order of their numbers in the file
  std::map<std::string, std::string> metadata;
  std::string where;  // the file, for messages

  // The tensor of that name, or null.
  const Tensor* find(std::string_view name) const;
  // Error (DataError): there is none; says which name is near.
  const Tensor& at(std::string_view name) const;
  // "; did you mean ...?" or nothing: the end of a message about a name that is missing.
  std::string suggest(std::string_view name) const;
};

// The tensors, copied to the CPU. `where` begins every message. Errors (DataError): whatever is not as the format has
// it, and what Cairn has no place for: other element types (int8, float8 ...), more axes than Shape takes, a header of
// more than 16 MB, which is that of some 100,000 tensors. float16 becomes float32. Memory for tensors is asked for when
// all of the header is checked.
TensorFile parse_safetensors(std::string_view bytes, const std::string& where);
// The same of a file, whose bytes are added to `hash`. Errors also as read_file.
TensorFile read_safetensors(const std::filesystem::path& path, Xxh128* hash = nullptr);

// The bytes of a file with these tensors, which are on the CPU, in their order: what it begins with, which is put into
// `header`, and the numbers of each tensor. The same tensors and metadata give the same bytes. What is not UTF-8 in a
// name becomes U+FFFD. Error: a name that is listed twice or "__metadata__"; a tensor without a value; more than can be
// read.
std::vector<std::string_view> safetensors_pieces(const TensorFile& file, std::string& header);
// The same from any device, in one piece.
std::string safetensors_bytes(const TensorFile& file);
// The same to a file. Errors also as replace_file.
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace cairn
