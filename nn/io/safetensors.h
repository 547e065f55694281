#pragma once
// Named tensors in a file, in the format of https://github.com/huggingface/safetensors: eight bytes with the size of a
// header, the header in JSON (name -> dtype, shape, range of bytes), and the tensors' numbers, little-endian,
// row-major, one after another without gaps. Files from anywhere may be read: nothing in them is executed, and every
// number is checked.
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
  std::vector<std::pair<std::string, Tensor>> tensors;  // in the order of their data in the file
  std::map<std::string, std::string> metadata;
  std::string where;  // the file, for messages

  // The tensor of that name, or null.
  const Tensor* find(std::string_view name) const;
  // Error (DataError): there is none; suggests a similar name.
  const Tensor& at(std::string_view name) const;
  // "; did you mean ...?" or nothing: the end of a message about a missing name.
  std::string suggest(std::string_view name) const;
};

// Parses a file; the tensors are copied to the CPU. `where` begins every message. Errors (DataError): the file violates
// the format; it has element types that Cairn lacks (int8, float8, ...), more axes than Shape takes, or a header of
// more than 16 MB (some 100,000 tensors). float16 becomes float32. Memory for tensors is allocated after the whole
// header was checked.
TensorFile parse_safetensors(std::string_view bytes, const std::string& where);
// The same for a file, whose bytes are added to `hash`. Errors: also as read_file.
TensorFile read_safetensors(const std::filesystem::path& path, Xxh128* hash = nullptr);

// The bytes of a file with these tensors, which are on the CPU: first the header, which is stored in `header`, then the
// data of each tensor, in order. The same tensors and metadata give the same bytes. Error: a name that is listed twice
// or is "__metadata__"; a name or metadata that is not UTF-8; a tensor without a value; a header too large to read
// back.
std::vector<std::string_view> safetensors_pieces(const TensorFile& file, std::string& header);
// The same for tensors on any device, in one string.
std::string safetensors_bytes(const TensorFile& file);
// Writes such a file. Errors: also as replace_file.
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace cairn
