#pragma once
// Named tensors in a file, in the format of https://github.com/huggingface/safetensors: eight bytes with the size of a
// header, the header in JSON (name -> dtype, shape, range of bytes), and the tensors' numbers, little-endian,
// row-major, one after another without gaps. Files from anywhere may be read: nothing in them is executed, and every
// number is checked.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace cairn {

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

// A file that is open, with its header read and checked. Its tensors are read one by one, so that memory is needed only
// for those in use.
class TensorReader {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::float32;  // of what is read: float16 becomes float32
    Shape shape;
    uint64_t begin = 0, end = 0;  // bytes in the file, from the end of the header
    bool half = false;            // the file has float16
  };

  // Errors (DataError): as open_file; the file violates the format; it has element types that Cairn lacks (int8,
  // float8, ...), more axes than Shape takes, or a header of more than 100 MB, which the format does not allow. Error
  // (OutOfMemory): as parse_json.
  explicit TensorReader(const std::filesystem::path& path);
  // The same for any stream, from its beginning. `name` begins every message.
  TensorReader(std::unique_ptr<std::istream> in, const std::string& name);

  // Error (DataError): there is none of that name; suggests a similar one.
  const Entry& at(std::string_view name) const;
  bool contains(std::string_view name) const { return by_name_.contains(name); }
  // Reads the numbers into a tensor of the same shape, on any device, and converts them to its type. Errors
  // (DataError): as at(); the file cannot be read; a bool that is neither 0 nor 1.
  void read(std::string_view name, Tensor to) const;
  // The same into a new tensor, on the CPU.
  Tensor read(std::string_view name) const;
  // The hash of the whole file.
  std::string hash() const;

  std::vector<Entry> entries;  // in the order of their data in the file
  std::map<std::string, std::string> metadata;
  std::string where;  // the file, for messages

 private:
  void read_bytes(void* to, size_t bytes) const;

  std::unique_ptr<std::istream> in_;
  uint64_t data_ = 0;  // where the header ends
  std::map<std::string_view, const Entry*> by_name_;
};

// All tensors of a file, on the CPU. Errors: as TensorReader.
TensorFile parse_safetensors(std::string_view bytes, const std::string& where);
TensorFile read_safetensors(const std::filesystem::path& path);

// The bytes of a file with these tensors, which are on the CPU: first the header, which is stored in `header`, then the
// data of each tensor, in order. The same tensors and metadata give the same bytes. Error: a name that is listed twice
// or is "__metadata__"; a name or metadata that is not UTF-8; a tensor without a value. Error (DataError): the header,
// with `reserve` more bytes, is larger than the format allows.
std::vector<std::string_view> safetensors_pieces(const TensorFile& file, std::string& header, size_t reserve = 0);
// The same for tensors on any device, in one string.
std::string safetensors_bytes(const TensorFile& file);
// Writes such a file. Errors: also as replace_file.
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace cairn
