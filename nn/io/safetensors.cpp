#include "nn/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <system_error>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/did_you_mean.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and numbers are copied as is");

constexpr uint64_t longest_header = 100'000'000;  // the limit of the format's own implementation

// In the order of DType.
constexpr std::string_view dtype_names[] = {"F32", "F64", "BF16", "I32", "I64", "U64", "U8", "BOOL"};
// What becomes float32.
constexpr std::string_view float16_name = "F16";
// What else the format has.
constexpr std::string_view other_dtype_names[] = {"I8",      "I16",         "U16",        "U32",     "C64",
                                                  "F8_E4M3", "F8_E5M2",     "F8_E8M0",    "F6_E2M3", "F6_E3M2",
                                                  "F4",      "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

// More than any model has; it bounds what a header costs.
constexpr size_t max_names = size_t{1} << 18;

// A tensor as the header has it, and where its numbers are, in bytes behind the header.
struct Entry {
  std::string_view name;
  DType dtype = DType::float32;
  bool half = false;  // the file has float16, which becomes float32
  Shape shape;
  uint64_t begin = 0, end = 0;

  uint64_t element_size() const { return half ? 2 : size_of(dtype); }
};

// The number that 16 bits are in IEEE 754's binary16: a sign, 5 bits of exponent, 10 of mantissa.
float float16_value(uint16_t bits) {
  const uint32_t sign = uint32_t(bits >> 15) << 31, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(float(mantissa) * 0x1p-24f));
  // The same mantissa and exponent, whose bias is 15 there and 127 here; 31 stands for infinity and NaN.
  return std::bit_cast<float>(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13);
}

// Does every character stand for itself in a string of JSON, and print?
bool is_plain(std::string_view text) {
  bool all = true;  // no early exit, so that the compiler can vectorize the loop
  for (const char c : text) all &= (c >= ' ') & (c <= '~') & (c != '"') & (c != '\\');
  return all;
}

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

// True only where no two are alike and none is 0. Whoever chooses the names chooses the hashes: what takes too long is
// not said to be distinct.
bool are_distinct(const std::vector<size_t>& hashes) {
  std::vector<size_t> table(std::bit_ceil(2 * hashes.size() + 1));
  size_t steps_left = 16 * table.size();
  for (const size_t hash : hashes) {
    size_t i = hash & (table.size() - 1);
    for (; table[i] != 0 && table[i] != hash && steps_left > 0; --steps_left) i = (i + 1) & (table.size() - 1);
    if (table[i] != 0 || hash == 0) return false;
    table[i] = hash;
  }
  return true;
}

// Reads one file. `where_` and the tensor's name begin every message.
class Parser {
 public:
  using Read = std::function<void(void* to, size_t bytes)>;

  Parser(uint64_t size, const Read& read, const std::string& where) : where_(where), read_(read), size_(size) {}

  TensorFile parse(bool values) {
    TensorFile file;
    file.where = where_;
    read_header();
    if (!parse_plain()) {
      entries_.clear();
      parse_json_members(std::exchange(header_, {}), where_ + ": header", max_names,
                         [&](std::string&& name, Json&& entry) {
                           if (name == "__metadata__")
                             file.metadata = parse_metadata(entry);
                           else
                             entries_.push_back(parse_entry(names_.emplace_back(std::move(name)), entry));
                         });
    }
    std::vector<Tensor> tensors(values ? entries_.size() : 0);
    // The numbers, one behind the other; of tensors of one dtype together, but for BOOL, whose bytes are looked at.
    const std::vector<size_t> order = in_order_of_bytes();
    for (size_t i = 0, next = 0; i < order.size(); i = next) {
      const Entry& first = entries_[order[i]];
      const auto continues = [&first](const Entry& entry) {
        return entry.dtype == first.dtype && entry.half == first.half && entry.dtype != DType::boolean;
      };
      do ++next;
      while (next < order.size() && continues(entries_[order[next]]));
      const auto these = std::span(order).subspan(i, next - i);
      if (values)
        read_numbers(these, tensors);
      else
        pass_numbers(these);
    }
    file.tensors.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) file.tensors.emplace_back(entries_[i].name, std::move(tensors[i]));
    return file;
  }

 private:
  template <class... Args>
  void expect(bool condition, const Args&... message) const {
    if (!condition) throw DataError(concat(where_, ": ", message...));
  }

  // Leaves the bytes behind the header to be read, and their number in size_.
  void read_header() {
    uint64_t size = 0;
    expect(size_ >= sizeof(size), "not a safetensors file: ", size_, " bytes, expected at least 8");
    read_(&size, sizeof(size));
    size_ -= sizeof(size);
    expect(size <= longest_header, "not a safetensors file: a header of ", size, " bytes, expected at most ",
           longest_header);
    expect(size <= size_, "cut off: expected a header of ", size, " bytes, got ", size_);
    char first = 0;
    if (size > 0) read_(&first, 1);
    expect(first == '{', "not a safetensors file: expected a header that begins with {");
    header_.assign(size, first);
    read_(&header_[1], size - 1);
    size_ -= size;
  }

  // Reads a header without metadata in the form that is usually written, without spaces and escapes, some ten times as
  // fast as JSON is. False where it has another form, or anything is wrong with it, which parse_json_members then says.
  bool parse_plain() {
    std::string_view text = header_;
    const auto take = [&text](std::string_view expected) {
      if (!text.starts_with(expected)) return false;
      text.remove_prefix(expected.size());
      return true;
    };
    const auto take_text = [&](std::string_view& found) {  // and the quote behind it
      found = text.substr(0, text.find('"'));
      text.remove_prefix(found.size());
      return !found.empty() && is_plain(found) && take("\"");
    };
    const auto take_number = [&](auto& found) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
      const auto digits = size_t(end - text.data());
      const bool is_json = error == std::errc() && text[0] != '-' && (text[0] != '0' || digits == 1);
      text.remove_prefix(digits);
      return is_json;
    };
    std::vector<size_t> names;  // their hashes
    const size_t about = std::min(text.size() / 100, max_names);
    names.reserve(about), entries_.reserve(about);
    if (!take("{")) return false;
    while (!take("}")) {
      std::string_view dtype;
      Entry entry;
      if (!(names.empty() || take(",")) || !take("\"") || !take_text(entry.name) || entry.name == "__metadata__" ||
          !take(":{\"dtype\":\"") || !take_text(dtype) || !take(",\"shape\":["))
        return false;
      const auto* known = std::find(std::begin(dtype_names), std::end(dtype_names), dtype);
      if (known == std::end(dtype_names)) return false;
      entry.dtype = DType(known - dtype_names);
      for (int64_t product = 1; !take("]");) {  // of the sizes but 0
        int64_t axis = 0;
        if (entry.shape.rank() == max_rank || !(entry.shape.rank() == 0 || take(",")) || !take_number(axis) ||
            __builtin_mul_overflow(product, std::max<int64_t>(axis, 1), &product))
          return false;
        entry.shape.push_back(axis);
      }
      if (!take(",\"data_offsets\":[") || !take_number(entry.begin) || !take(",") || !take_number(entry.end) ||
          !take("]}"))
        return false;
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(uint64_t(entry.shape.elements()), size_of(entry.dtype), &bytes) ||
          entry.begin > entry.end || entry.end > size_ || entry.end - entry.begin != bytes || names.size() == max_names)
        return false;
      names.push_back(std::hash<std::string_view>()(entry.name));
      entries_.push_back(entry);
    }
    return text.find_first_not_of(' ') == std::string_view::npos && are_distinct(names);
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

  Entry parse_entry(const std::string& name, const Json& entry) const {
    const TensorNamed what{name};
    expect(!name.empty() && name.find('\0') == std::string::npos, what, "a name that is empty or contains NUL");
    expect(entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry.contains("shape") &&
               entry.contains("data_offsets"),
           what, "expected an object of dtype, shape and data_offsets");
    Entry found;
    found.name = name;
    parse_dtype(what, entry["dtype"], found);
    found.shape = parse_shape(what, entry["shape"]);
    uint64_t size = 0;
    expect(!__builtin_mul_overflow(uint64_t(found.shape.elements()), found.element_size(), &size), what,
           "too many bytes in ", found.shape);

    const Json& offsets = entry["data_offsets"];
    expect(
        offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
        what, "data_offsets: expected two whole numbers that are not negative");
    found.begin = offsets[0], found.end = offsets[1];
    expect(found.begin <= found.end && found.end <= size_, what, "data_offsets [", found.begin, ", ", found.end,
           "]: not within the ", size_, " bytes behind the header; the file may be cut off");
    expect(found.end - found.begin == size, what, "data_offsets [", found.begin, ", ", found.end,
           "]: ", found.end - found.begin, " bytes, expected ", size, " for ",
           found.half ? float16_name : dtype_names[int(found.dtype)], " of shape ", found.shape);
    return found;
  }

  void parse_dtype(TensorNamed what, const Json& value, Entry& found) const {
    expect(value.is_string(), what, "dtype: expected a string, got ", value.type_name());
    const auto& text = value.get_ref<const std::string&>();
    const auto* known = std::find(std::begin(dtype_names), std::end(dtype_names), text);
    found.half = text == float16_name;
    if (found.half) return;
    if (known != std::end(dtype_names)) {
      found.dtype = DType(known - dtype_names);
      return;
    }
    std::string all(float16_name);
    for (std::string_view each : dtype_names) all.append(", ").append(each);
    const bool other = std::count(std::begin(other_dtype_names), std::end(other_dtype_names), text) > 0;
    throw DataError(concat(where_, ": ", what, "dtype ", in_quotes(text), other ? " is not supported" : " is unknown",
                           "; expected one of ", all));
  }

  Shape parse_shape(TensorNamed what, const Json& value) const {
    expect(value.is_array(), what, "shape: expected an array, got ", value.type_name());
    expect(value.size() <= size_t(max_rank), what, "shape: ", value.size(), " axes, expected at most ", max_rank);
    Shape shape;
    int64_t product = 1;  // of the sizes but 0
    for (const Json& size : value) {
      // Errors of Shape itself are about what this program does, not about a file.
      const bool fits = size.is_number_unsigned() && size.get<uint64_t>() <= uint64_t(INT64_MAX);
      expect(fits, what, "shape: expected sizes from 0 to 2^63 - 1, got ", ShownNumber{size});
      const int64_t axis = size.get<int64_t>();
      expect(axis == 0 || !__builtin_mul_overflow(product, axis, &product), what, "shape: too many elements");
      shape.push_back(axis);
    }
    return shape;
  }

  // The tensors sorted by where their bytes are, which must fill those behind the header.
  std::vector<size_t> in_order_of_bytes() const {
    std::vector<size_t> order(entries_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto before = [this](size_t i, size_t j) {
      const Entry &a = entries_[i], &b = entries_[j];
      return std::tuple(a.begin, a.end, i) < std::tuple(b.begin, b.end, j);
    };
    if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
    uint64_t reached = 0;
    for (const size_t i : order) {
      const Entry& entry = entries_[i];
      expect(entry.begin >= reached, TensorNamed{entry.name}, "its bytes from ", entry.begin,
             " on are those of another tensor too");
      expect(entry.begin == reached, "bytes ", reached, " to ", entry.begin, " behind the header, before tensor ",
             in_quotes(entry.name), ", belong to no tensor");
      reached = entry.end;
    }
    expect(reached == size_, size_ - reached, " bytes at the end belong to no tensor");
    return order;
  }

  // Tensors of one dtype whose bytes are one behind the other become parts of one: thousands of small ones need no
  // memory each.
  void read_numbers(std::span<const size_t> these, std::vector<Tensor>& tensors) const {
    const Entry &first = entries_[these.front()], &last = entries_[these.back()];
    const uint64_t bytes = first.element_size();
    Tensor all({int64_t((last.end - first.begin) / bytes)}, first.dtype);
    if (first.half) {
      read_float16(all);
    } else {
      read_(all.mutable_raw(), all.bytes());
      check_numbers(first, static_cast<const char*>(all.raw()), all.bytes());
    }
    for (const size_t i : these) {
      const Entry& entry = entries_[i];
      const auto begin = int64_t((entry.begin - first.begin) / bytes), end = int64_t((entry.end - first.begin) / bytes);
      tensors[i] = all.slice(begin, end).reshape(entry.shape);
    }
  }
  void read_float16(Tensor& all) const {
    float* out = all.mutable_data<float>();
    std::vector<uint16_t> block(size_t(std::min<int64_t>(all.elements(), 1 << 16)));
    for (int64_t left = all.elements(); left > 0;) {
      const int64_t n = std::min<int64_t>(left, int64_t(block.size()));
      read_(block.data(), size_t(n) * sizeof(uint16_t));
      out = std::transform(block.begin(), block.begin() + n, out, float16_value);
      left -= n;
    }
  }
  void pass_numbers(std::span<const size_t> these) {
    if (buffer_.empty()) buffer_.resize(size_t{1} << 18);
    const Entry &first = entries_[these.front()], &last = entries_[these.back()];
    for (uint64_t left = last.end - first.begin; left > 0;) {
      const size_t size = size_t(std::min<uint64_t>(left, buffer_.size()));
      read_(buffer_.data(), size);
      check_numbers(first, buffer_.data(), size);
      left -= size;
    }
  }
  void check_numbers(const Entry& entry, const char* bytes, size_t size) const {
    if (entry.dtype != DType::boolean) return;
    expect(std::all_of(bytes, bytes + size, [](char c) { return c == 0 || c == 1; }), TensorNamed{entry.name},
           "BOOL: a byte that is neither 0 nor 1");
  }

  const std::string& where_;
  const Read& read_;
  uint64_t size_;                  // of what is left to read; once the header is, of what is behind it
  std::string header_;             // until it is read as JSON
  std::deque<std::string> names_;  // of JSON
  std::vector<Entry> entries_;     // in the order of the header; their names are parts of it, or of names_
  std::string buffer_;
};

// A string as JSON. Error when it is written: not UTF-8.
struct JsonString {
  const std::string& text;
  const char* what;
};
void append(std::string& header, const JsonString& string) try {
  if (is_plain(string.text))
    header.append(1, '"').append(string.text).append(1, '"');
  else
    header += Json(string.text).dump();
} catch (const Json::type_error&) {
  throw Error(concat("safetensors: ", string.what, ' ', in_quotes(string.text), " is not UTF-8"));
}

// Behind room for its size, and without the padding.
std::string header_of(const TensorFile& file) {
  std::string header(sizeof(uint64_t), '\0');
  char before = '{';
  const auto add = [&header](const auto&... parts) {
    using cairn::append;
    (append(header, parts), ...);
  };
  header.reserve(128 * (1 + file.tensors.size()));
  if (!file.metadata.empty()) {
    add("{\"__metadata__\":");
    for (const auto& [key, value] : file.metadata)
      add(std::exchange(before, ','), JsonString{key, "metadata"}, ':', JsonString{value, "metadata"});
    add('}');
  }
  std::vector<size_t> hashes;
  hashes.reserve(file.tensors.size());
  for (const auto& each : file.tensors) hashes.push_back(std::hash<std::string_view>()(each.first));
  if (!are_distinct(hashes)) {
    std::unordered_set<std::string_view> names;
    for (const auto& each : file.tensors)
      check(names.insert(each.first).second, "safetensors: two tensors named ", in_quotes(each.first));
  }
  size_t reached = 0;
  for (const auto& [name, tensor] : file.tensors) {
    check(!name.empty() && name != "__metadata__" && name.find('\0') == std::string::npos,
          "safetensors: expected a tensor's name to be neither empty nor \"__metadata__\" nor to contain NUL, got ",
          in_quotes(name));
    check(tensor.defined(), "safetensors: tensor ", in_quotes(name), " was never given a value");
    add(std::exchange(before, ','), JsonString{name, "name"}, ":{\"dtype\":\"", dtype_names[int(tensor.dtype())],
        "\",\"shape\":[");
    for (int axis = 0; axis < tensor.rank(); ++axis) add(axis ? "," : "", tensor.size(axis));
    add("],\"data_offsets\":[", reached, ',', reached + tensor.bytes(), "]}");
    reached += tensor.bytes();
  }
  add(before == '{' ? "{}" : "}");
  return header;
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

TensorFile parse_safetensors(uint64_t size, const std::function<void(void*, size_t)>& read, const std::string& where,
                             bool values) {
  return Parser(size, read, where).parse(values);
}

TensorFile parse_safetensors(std::string_view bytes, const std::string& where) {
  return parse_safetensors(
      bytes.size(),
      [&bytes](void* to, size_t size) {
        if (size > 0) std::memcpy(to, bytes.data(), size);
        bytes.remove_prefix(size);
      },
      where);
}

TensorFile read_safetensors(const std::filesystem::path& path) {
  FileReader reader(path);
  return parse_safetensors(
      reader.size(), [&reader](void* to, size_t size) { reader.read(to, size); }, path.string());
}

std::string safetensors_header(const TensorFile& file) {
  check(file.tensors.size() <= max_names && file.metadata.size() <= max_names, "safetensors: ", file.tensors.size(),
        " tensors and ", file.metadata.size(), " entries of metadata, expected at most ", max_names);
  std::string header = header_of(file);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size() - sizeof(size);
  check(size <= longest_header, "safetensors: a header of ", size, " bytes, expected at most ", longest_header);
  std::memcpy(header.data(), &size, sizeof(size));
  return header;
}

std::string safetensors_bytes(const TensorFile& file) {
  std::string bytes = safetensors_header(file);
  for (const auto& [name, tensor] : file.tensors) {
    const Tensor host = tensor.to(Device::cpu);
    bytes.append(static_cast<const char*>(host.raw()), host.bytes());
  }
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  replace_file(path, {safetensors_bytes(file)});
}

}  // namespace cairn
