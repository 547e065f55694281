#include "nn/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and numbers are copied as is");

constexpr uint64_t longest_header = 100'000'000;  // the limit of the format's own implementation

// In the order of DType.
constexpr std::string_view dtype_names[] = {"F32", "F64", "BF16", "I32", "I64", "U64", "U8", "BOOL"};
// What else the format has.
constexpr std::string_view other_dtype_names[] = {"F16",     "I8",      "I16",         "U16",        "U32",
                                                  "C64",     "F8_E4M3", "F8_E5M2",     "F8_E8M0",    "F6_E2M3",
                                                  "F6_E3M2", "F4",      "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

// Where a tensor's numbers are, in bytes behind the header.
struct Range {
  uint64_t begin = 0, end = 0;
  std::string_view name;
};

// The beginning of a message about a tensor.
struct TensorNamed {
  std::string_view name;
};
void append(std::string& text, const TensorNamed& tensor) { text += concat("tensor ", in_quotes(tensor.name), ": "); }

// A number, or what there is instead.
struct ShownNumber {
  const Json& value;
};
void append(std::string& text, const ShownNumber& shown) {
  text += shown.value.is_number() ? shown.value.dump() : shown.value.type_name();
}

// Reads one file. `where_` and the tensor's name begin every message.
class Parser {
 public:
  Parser(std::string_view bytes, const std::string& where) : where_(where), bytes_(bytes) {}

  TensorFile parse() {
    const Json header = parse_header();
    TensorFile file;
    file.where = where_;
    std::vector<Range> ranges;
    for (const auto& [name, entry] : header.items())
      if (name == "__metadata__")
        file.metadata = parse_metadata(entry);
      else
        file.tensors.emplace_back(name, parse_tensor(name, entry, ranges));
    check_ranges(ranges);
    return file;
  }

 private:
  template <class... Args>
  void expect(bool condition, const Args&... message) const {
    if (!condition) throw DataError(concat(where_, ": ", message...));
  }

  // Leaves the numbers behind the header in bytes_.
  Json parse_header() {
    uint64_t size = 0;
    expect(bytes_.size() >= sizeof(size), "not a safetensors file: ", bytes_.size(), " bytes, expected at least 8");
    std::memcpy(&size, bytes_.data(), sizeof(size));
    bytes_.remove_prefix(sizeof(size));
    expect(size <= longest_header, "not a safetensors file: a header of ", size, " bytes, expected at most ",
           longest_header);
    expect(size <= bytes_.size(), "cut off: expected a header of ", size, " bytes, got ", bytes_.size());
    const std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    expect(text.substr(0, 1) == "{", "not a safetensors file: expected a header that begins with {");
    return parse_json(text, where_ + ": header");
  }

  std::map<std::string, std::string> parse_metadata(const Json& entry) const {
    expect(entry.is_object(), "__metadata__: expected an object of strings, got ", entry.type_name());
    std::map<std::string, std::string> metadata;
    for (const auto& [key, value] : entry.items()) {
      expect(value.is_string(), "__metadata__: ", in_quotes(key), ": expected a string, got ", value.type_name());
      metadata.emplace(key, value.get<std::string>());
    }
    return metadata;
  }

  Tensor parse_tensor(const std::string& name, const Json& entry, std::vector<Range>& ranges) const {
    const TensorNamed what{name};
    expect(!name.empty() && name.find('\0') == std::string::npos, what, "a name that is empty or contains NUL");
    expect(entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry.contains("shape") &&
               entry.contains("data_offsets"),
           what, "expected an object of dtype, shape and data_offsets");
    const DType dtype = parse_dtype(what, entry["dtype"]);
    const Shape shape = parse_shape(what, entry["shape"]);
    uint64_t size = 0;
    expect(!__builtin_mul_overflow(uint64_t(shape.elements()), size_of(dtype), &size), what, "too many bytes in ",
           shape);

    const Json& offsets = entry["data_offsets"];
    expect(
        offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
        what, "data_offsets: expected two whole numbers that are not negative");
    const Range range{offsets[0], offsets[1], name};
    expect(range.begin <= range.end && range.end <= bytes_.size(), what, "data_offsets [", range.begin, ", ", range.end,
           "]: not within the ", bytes_.size(), " bytes behind the header; the file may be cut off");
    expect(range.end - range.begin == size, what, "data_offsets [", range.begin, ", ", range.end,
           "]: ", range.end - range.begin, " bytes, expected ", size, " for ", dtype_names[int(dtype)], " of shape ",
           shape);
    ranges.push_back(range);

    // Checked before the memory is asked for, which is then no more than the file's size.
    Tensor tensor(shape, dtype);
    const std::string_view numbers = bytes_.substr(range.begin, size);
    if (dtype == DType::boolean)
      expect(std::all_of(numbers.begin(), numbers.end(), [](char c) { return c == 0 || c == 1; }), what,
             "BOOL: a byte that is neither 0 nor 1");
    if (size > 0) std::memcpy(tensor.mutable_raw(), numbers.data(), size);
    return tensor;
  }

  DType parse_dtype(TensorNamed what, const Json& value) const {
    expect(value.is_string(), what, "dtype: expected a string, got ", value.type_name());
    const auto& text = value.get_ref<const std::string&>();
    const auto* known = std::find(std::begin(dtype_names), std::end(dtype_names), text);
    if (known != std::end(dtype_names)) return DType(known - dtype_names);
    std::string all;
    for (std::string_view each : dtype_names) all.append(all.empty() ? "" : ", ").append(each);
    const bool other = std::count(std::begin(other_dtype_names), std::end(other_dtype_names), text) > 0;
    throw DataError(concat(where_, ": ", what, "dtype ", in_quotes(text), other ? " is not supported" : " is unknown",
                           "; expected one of ", all));
  }

  Shape parse_shape(TensorNamed what, const Json& value) const {
    expect(value.is_array(), what, "shape: expected an array, got ", value.type_name());
    expect(value.size() <= size_t(max_rank), what, "shape: ", value.size(), " axes, expected at most ", max_rank);
    Shape shape;
    for (const Json& size : value) {
      // Errors of Shape itself are about what this program does, not about a file.
      const bool fits = size.is_number_unsigned() && size.get<uint64_t>() <= uint64_t(INT64_MAX);
      int64_t product = 0;
      expect(fits, what, "shape: expected sizes from 0 to 2^63 - 1, got ", ShownNumber{size});
      const int64_t axis = size.get<int64_t>();
      expect(axis == 0 || !__builtin_mul_overflow(nonzero_product(shape), axis, &product), what,
             "shape: too many elements");
      shape.push_back(axis);
    }
    return shape;
  }

  static int64_t nonzero_product(const Shape& shape) {
    int64_t product = 1;
    for (int64_t size : shape) product *= std::max<int64_t>(size, 1);
    return product;
  }

  // The ranges, sorted, must fill the bytes behind the header.
  void check_ranges(std::vector<Range>& ranges) const {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    uint64_t reached = 0;
    for (const Range& range : ranges) {
      expect(range.begin >= reached, "tensor ", in_quotes(range.name), ": its bytes from ", range.begin,
             " on are those of another tensor too");
      expect(range.begin == reached, "bytes ", reached, " to ", range.begin, " behind the header, before tensor ",
             in_quotes(range.name), ", belong to no tensor");
      reached = range.end;
    }
    expect(reached == bytes_.size(), bytes_.size() - reached, " bytes at the end belong to no tensor");
  }

  const std::string& where_;
  std::string_view bytes_;
};

// A string as JSON. Error: not UTF-8.
std::string json_string(const std::string& text, const char* what) try {
  return Json(text).dump();
} catch (const Json::type_error&) {
  throw Error(concat("safetensors: ", what, ' ', in_quotes(text), " is not UTF-8"));
}

// Without the padding.
std::string header_of(const TensorFile& file) {
  std::string header;
  const auto item = [&header] { header += header.empty() ? '{' : ','; };
  if (!file.metadata.empty()) {
    item();
    header += "\"__metadata__\":";
    char before = '{';
    for (const auto& [key, value] : file.metadata) {
      header += std::exchange(before, ',') + json_string(key, "metadata") + ':' + json_string(value, "metadata");
    }
    header += '}';
  }
  std::unordered_set<std::string_view> names;
  size_t reached = 0;
  for (const auto& [name, tensor] : file.tensors) {
    check(!name.empty() && name != "__metadata__" && name.find('\0') == std::string::npos,
          "safetensors: expected a tensor's name to be neither empty nor \"__metadata__\" nor to contain NUL, got ",
          in_quotes(name));
    check(names.insert(name).second, "safetensors: two tensors named ", in_quotes(name));
    check(tensor.defined(), "safetensors: tensor ", in_quotes(name), " was never given a value");
    item();
    header += json_string(name, "name");
    header += concat(":{\"dtype\":\"", dtype_names[int(tensor.dtype())], "\",\"shape\":[");
    for (int axis = 0; axis < tensor.rank(); ++axis) header += concat(axis ? "," : "", tensor.size(axis));
    header += concat("],\"data_offsets\":[", reached, ',', reached + tensor.bytes(), "]}");
    reached += tensor.bytes();
  }
  return header.empty() ? "{}" : header + '}';
}

}  // namespace

const Tensor* TensorFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) { return each.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

const Tensor& TensorFile::at(std::string_view name) const {
  const Tensor* found = find(name);
  check<DataError>(found != nullptr, where, where.empty() ? "" : ": ", "no tensor ", in_quotes(name), suggest(name));
  return *found;
}

void append(std::string& text, const TensorFile::Suggestion& suggestion) {
  const auto& tensors = suggestion.file.tensors;
  std::vector<std::string> names;
  for (const auto& [each, tensor] : tensors)
    if (each.size() < 256) names.push_back(each);
  if (const std::string near = nearest(suggestion.name, names); !near.empty())
    text += concat("; did you mean ", in_quotes(near), '?');
  else if (names.empty() || names.size() > 12)
    text += concat("; there are ", tensors.size(), " others");
  else
    for (size_t i = 0; i < names.size(); ++i) text += concat(i == 0 ? "; there are " : ", ", in_quotes(names[i]));
}

TensorFile parse_safetensors(std::string_view bytes, const std::string& where) { return Parser(bytes, where).parse(); }

TensorFile read_safetensors(const std::filesystem::path& path) {
  return parse_safetensors(read_file(path), path.string());
}

std::string safetensors_bytes(const TensorFile& file) {
  std::string header = header_of(file);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  check(size <= longest_header, "safetensors: a header of ", size, " bytes, expected at most ", longest_header);

  size_t total = sizeof(size) + header.size();
  for (const auto& [name, tensor] : file.tensors) total += tensor.bytes();
  std::string bytes;
  bytes.reserve(total);
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(header);
  for (const auto& [name, tensor] : file.tensors) {
    const Tensor host = tensor.to(Device::cpu);
    bytes.append(static_cast<const char*>(host.raw()), host.bytes());
  }
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  write_file(path, {safetensors_bytes(file)});
}

}  // namespace cairn
