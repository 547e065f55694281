#include "nn/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "core/did_you_mean.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and numbers are copied as is");

constexpr uint64_t longest_header = 100000000;  // the format's

// In the order of DType. float16 becomes float32.
constexpr std::string_view dtype_names[] = {"F32", "F64", "BF16", "I32", "I64", "U64", "U8", "BOOL"};
constexpr std::string_view float16_name = "F16";

using Entry = TensorReader::Entry;

// Converts IEEE 754's binary16: a sign, 5 bits of exponent, 10 of mantissa.
float float16_value(uint16_t bits) {
  const uint32_t sign = uint32_t(bits >> 15) << 31, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(float(mantissa) * 0x1p-24f));
  // The same mantissa and exponent, whose bias is 15 there and 127 here; 31 stands for infinity and NaN.
  return std::bit_cast<float>(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13);
}

// ---- reading. Errors (DataError): the format is violated. `where` begins every message.

DType parse_dtype(std::string_view text) {
  const auto* known = std::find(std::begin(dtype_names), std::end(dtype_names), text);
  if (known != std::end(dtype_names)) return DType(known - dtype_names);
  std::string all(float16_name);
  for (const std::string_view each : dtype_names) all += concat(", ", each);
  throw DataError(concat("dtype: expected one of ", all, ", got ", in_quotes(text)));
}

Entry parse_entry(const std::string& name, const Json& json, uint64_t bytes_there, const std::string& where) try {
  const auto& dtype = json.at("dtype").get_ref<const std::string&>();
  const Json& range = json.at("data_offsets");
  Entry entry;
  entry.name = name;
  entry.half = dtype == float16_name;
  if (!entry.half) entry.dtype = parse_dtype(dtype);
  for (const Json& size : json.at("shape").get_ref<const Json::array_t&>())
    entry.shape.push_back(int64_t(size.get_ref<const uint64_t&>()));  // one beyond int64 is negative now, and refused
  entry.begin = range.at(0).get_ref<const uint64_t&>();
  entry.end = range.at(1).get_ref<const uint64_t&>();
  check<DataError>(range.size() == 2, "expected two data_offsets, got ", range.size());
  check<DataError>(entry.begin <= entry.end && entry.end <= bytes_there, "data_offsets [", entry.begin, ", ", entry.end,
                   "]: not within the ", bytes_there, " bytes after the header; the file may be cut off");
  const uint64_t bytes = entry.end - entry.begin, of_one = entry.half ? sizeof(uint16_t) : size_of(entry.dtype);
  check<DataError>(bytes % of_one == 0 && bytes / of_one == uint64_t(entry.shape.elements()), "data_offsets [",
                   entry.begin, ", ", entry.end, "]: ", bytes, " bytes are not those of ", dtype, " of shape ",
                   entry.shape);
  return entry;
} catch (const Error& error) {  // the shape's, too
  throw DataError(concat(where, ": tensor ", in_quotes(name), ": ", error.what()));
} catch (const Json::exception&) {
  throw DataError(concat(where, ": tensor ", in_quotes(name),
                         ": expected an object with dtype, a string, and shape and ",
                         "data_offsets, arrays of whole numbers that are not negative"));
}

// The tensors, in the order in which they must fill the bytes after the header.
std::vector<Entry> parse_header(const std::string& text, uint64_t bytes_there, const std::string& where,
                                std::map<std::string, std::string>& metadata) {
  // The library would also take white space before the header, and a NUL as its end.
  const bool begins = text.starts_with('{') && text.find('\0') == std::string::npos;
  const Json header = begins ? parse_json(text, where + ": header") : Json();
  check<DataError>(header.is_object(), where, ": not a safetensors file: expected a header that is a JSON object");
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.get_ref<const Json::object_t&>()) {
    if (name != "__metadata__") {
      entries.push_back(parse_entry(name, json, bytes_there, where));
      continue;
    }
    try {
      metadata = json.get<std::map<std::string, std::string>>();
    } catch (const Json::exception&) {
      throw DataError(where + ": __metadata__: expected an object of strings");
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t reached = 0;
  for (const Entry& entry : entries) {
    check<DataError>(entry.begin == reached, where, ": tensor ", in_quotes(entry.name), ": begins at byte ",
                     entry.begin, " after the header, expected ", reached, ", where the tensors before it end");
    reached = entry.end;
  }
  check<DataError>(reached == bytes_there, where, ": ", bytes_there - reached, " bytes at the end belong to no tensor");
  return entries;
}

TensorFile all_of(const TensorReader& reader) {
  TensorFile file{{}, reader.metadata, reader.where};
  for (const Entry& entry : reader.entries) file.tensors.emplace_back(entry.name, reader.read(entry.name));
  return file;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& names) {
  const std::string near = nearest(name, names);
  return near.empty() ? "" : concat("; did you mean ", in_quotes(near), '?');
}

// ---- writing

std::string as_json(const Json& text) try { return text.dump(); } catch (const Json::type_error&) {
  const std::string replaced = text.dump(-1, ' ', false, Json::error_handler_t::replace);
  throw Error(concat("safetensors: expected names and metadata in UTF-8, got ", in_quotes(replaced)));
}

TensorFile on_cpu(TensorFile file) {
  for (auto& [name, tensor] : file.tensors)
    if (tensor.defined()) tensor = tensor.to(Device::cpu);
  return file;
}

}  // namespace

const Tensor* TensorFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) { return each.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

const Tensor& TensorFile::at(std::string_view name) const {
  if (const Tensor* found = find(name)) return *found;
  throw DataError(concat(where, where.empty() ? "" : ": ", "no tensor ", in_quotes(name), suggest(name)));
}

std::string TensorFile::suggest(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [each, tensor] : tensors) names.push_back(each);
  return suggestion(name, names);
}

TensorReader::TensorReader(const std::filesystem::path& path)
    : TensorReader(std::make_unique<std::ifstream>(open_file(path).first), path.string()) {}

TensorReader::TensorReader(std::unique_ptr<std::istream> in, const std::string& name)
    : where(name), in_(std::move(in)) {
  const auto file_size = uint64_t(in_->seekg(0, std::ios::end).tellg());
  uint64_t size = 0;
  check<DataError>(file_size >= sizeof(size), where, ": not a safetensors file: ", file_size,
                   " bytes, expected at least 8");
  in_->seekg(0);
  read_bytes(&size, sizeof(size));
  const uint64_t behind = file_size - sizeof(size);
  check<DataError>(size <= longest_header, where, ": not a safetensors file: a header of ", size,
                   " bytes, expected at most ", longest_header);
  check<DataError>(size <= behind, where, ": cut off: expected a header of ", size, " bytes, got ", behind);
  check_json_memory(size, where + ": header");
  std::string text(size, '\0');
  read_bytes(text.data(), size);
  entries = parse_header(text, behind - size, where, metadata);
  data_ = sizeof(size) + size;
  for (const Entry& entry : entries) by_name_.emplace(entry.name, &entry);
}

void TensorReader::read_bytes(void* to, size_t bytes) const {
  check<DataError>(bool(in_->read(static_cast<char*>(to), std::streamsize(bytes))), where, ": cannot be read");
}

const Entry& TensorReader::at(std::string_view name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return *found->second;
  std::vector<std::string> names;
  for (const Entry& each : entries) names.push_back(each.name);
  throw DataError(concat(where, ": no tensor ", in_quotes(name), suggestion(name, names)));
}

void TensorReader::read(std::string_view name, Tensor to) const {
  const Entry& entry = at(name);
  constexpr int64_t at_once = 1 << 18;  // elements, so that little memory is needed beside the tensor
  in_->seekg(std::streamoff(data_ + entry.begin));
  to = to.reshape(Shape{entry.shape.elements()});
  std::vector<uint16_t> halves;
  for (int64_t begin = 0; begin < to.elements(); begin += at_once) {
    Tensor part({std::min(at_once, to.elements() - begin)}, entry.dtype);
    if (entry.half) {
      halves.resize(size_t(part.elements()));
      read_bytes(halves.data(), halves.size() * sizeof(uint16_t));
      std::transform(halves.begin(), halves.end(), part.mutable_data<float>(), float16_value);
    } else {
      read_bytes(part.mutable_raw(), part.bytes());
    }
    const auto* bytes = static_cast<const unsigned char*>(part.raw());
    if (entry.dtype == DType::boolean)
      check<DataError>(std::all_of(bytes, bytes + part.bytes(), [](unsigned char byte) { return byte <= 1; }), where,
                       ": tensor ", in_quotes(entry.name), ": BOOL: a byte that is neither 0 nor 1");
    to.slice(begin, begin + part.elements()).copy_from(part.cast(to.dtype()));
  }
}

Tensor TensorReader::read(std::string_view name) const {
  const Entry& entry = at(name);
  Tensor tensor(entry.shape, entry.dtype);
  read(name, tensor);
  return tensor;
}

std::string TensorReader::hash() const {
  Xxh128 hash;
  std::string part(size_t{1} << 18, '\0');
  in_->seekg(0);
  while (in_->read(part.data(), std::streamsize(part.size())) || in_->gcount() > 0)
    hash.add(std::string_view(part).substr(0, size_t(in_->gcount())));
  check<DataError>(!in_->bad(), where, ": cannot be read");
  in_->clear();  // the end is no error
  return hash.text();
}

TensorFile parse_safetensors(std::string_view bytes, const std::string& where) {
  return all_of(TensorReader(std::make_unique<std::istringstream>(std::string(bytes)), where));
}
TensorFile read_safetensors(const std::filesystem::path& path) { return all_of(TensorReader(path)); }

std::vector<std::string_view> safetensors_pieces(const TensorFile& file, std::string& header, size_t reserve) {
  std::vector<std::string_view> pieces(1);  // the header
  std::string json;
  if (!file.metadata.empty()) json = concat("{\"__metadata__\":", as_json(file.metadata));
  std::set<std::string_view> names;
  size_t reached = 0;
  for (const auto& [name, tensor] : file.tensors) {
    check(name != "__metadata__", "safetensors: a tensor cannot be named \"__metadata__\"");
    check(names.insert(name).second, "safetensors: two tensors named ", in_quotes(name));
    check(tensor.defined(), "safetensors: tensor ", in_quotes(name), " was never given a value");
    json += concat(json.empty() ? '{' : ',', as_json(name), ":{\"dtype\":\"", dtype_names[int(tensor.dtype())],
                   "\",\"shape\":[");
    for (int axis = 0; axis < tensor.rank(); ++axis) json += concat(axis == 0 ? "" : ",", tensor.size(axis));
    json += concat("],\"data_offsets\":[", reached, ',', reached + tensor.bytes(), "]}");
    reached += tensor.bytes();
    pieces.emplace_back(static_cast<const char*>(tensor.raw()), tensor.bytes());
  }
  json += json.empty() ? "{}" : "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t size = json.size();
  check<DataError>(size + reserve <= longest_header, file.where.empty() ? "safetensors" : file.where, ": ",
                   file.tensors.size(), " tensors need a header of ", size + reserve, " bytes, and the format allows ",
                   longest_header, "; shorten their names, or write several files");
  header.assign(reinterpret_cast<const char*>(&size), sizeof(size));
  header += json;
  pieces[0] = header;
  return pieces;
}

std::string safetensors_bytes(const TensorFile& file) {
  const TensorFile host = on_cpu(file);
  std::string header, bytes;
  for (const std::string_view piece : safetensors_pieces(host, header)) bytes += piece;
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  const TensorFile host = on_cpu(file);
  std::string header;
  replace_file(path, safetensors_pieces(host, header));
}

}  // namespace cairn
