#pragma once
// Named tensors in a file, in the format of https://github.com/huggingface/safetensors: eight bytes with the size of a
// header, the header in JSON (name -> dtype, shape, range of bytes), and the tensors' numbers, little-endian,
// row-major, one behind the other without gaps. No code is ever run and no number trusted: a file from anywhere may be
// read.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace cairn {

struct TensorFile {
  std::vector<std::pair<std::string, Tensor>> tensors;  // in the order of the header
  std::map<std::string, std::string> metadata;
  std::string where;  // the file, for messages

  // The tensor of that name, or null.
  const Tensor* find(std::string_view name) const;
  // Error (DataError): there is none; says which name is near.
  const Tensor& at(std::string_view name) const;
  // "; did you mean ...?" or how many tensors there are: the end of a message about a name that is missing. Looked up
  // when it is written.
  struct Suggestion {
    const TensorFile& file;
    std::string_view name;
  };
  Suggestion suggest(std::string_view name) const { return {*this, name}; }
};

void append(std::string& text, const TensorFile::Suggestion& suggestion);

// The tensors, copied to the CPU. `where` begins every message. Errors (DataError): whatever is not as the format has
// it, and what Cairn has no place for: other element types (int8, float8 ...), more axes than Shape takes, more
// tensors or metadata than 262,144. float16 becomes float32. The header is checked before memory is asked for, which is
// at most 3 times its size, and the numbers'. Tensors of one dtype are parts of one storage.
TensorFile parse_safetensors(std::string_view bytes, const std::string& where);
// The same of `size` bytes that `read` gives one behind the other. Without `values` all is read and checked, and the
// tensors are left out.
TensorFile parse_safetensors(uint64_t size, const std::function<void(void* to, size_t bytes)>& read,
                             const std::string& where, bool values = true);
// The same of a file. Errors (DataError) also as read_file.
TensorFile read_safetensors(const std::filesystem::path& path);

// What a file begins with that has these tensors in their order: all but their numbers. The same tensors and metadata
// give the same bytes. Error: a name that is empty, listed twice, "__metadata__", not UTF-8 or contains NUL; a tensor
// without a value; more than can be read.
std::string safetensors_header(const TensorFile& file);
// The header and the numbers of a file with these tensors, from any device.
std::string safetensors_bytes(const TensorFile& file);
// The same to a file. Errors also as replace_file.
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace cairn
