#include "nn/io/safetensors.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/ops.h"
#include "tests/io/io_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;

static const std::string golden_folder = CAIRN_SOURCE_DIR "/tests/golden/";

// A file with this header, then these bytes.
static std::string file_of(const std::string& header, const std::string& numbers = "") {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + numbers;
}
static std::string refused(const std::string& bytes) {
  const std::string message = data_error([&] { parse_safetensors(bytes, "x.safetensors"); });
  CHECK_THAT(message, ContainsSubstring("x.safetensors: "));
  return message;
}

static bool same(const TensorFile& a, const TensorFile& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto& [name, x] = a.tensors[i];
    const auto& [other_name, y] = b.tensors[i];
    if (name != other_name || x.dtype() != y.dtype() || x.shape() != y.shape()) return false;
    if (x.bytes() && std::memcmp(x.raw(), y.raw(), x.bytes()) != 0) return false;
  }
  return true;
}

// Every element type, empty tensors, a scalar, the highest rank, odd names and values.
static TensorFile example() {
  TensorFile file;
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  file.tensors.emplace_back("float", Tensor::from<float>({1.5f, -0.0f, 1e-45f, INFINITY, nan, -2}, {2, 3}));
  file.tensors.emplace_back("bytes", Tensor::from<uint8_t>({1, 2, 255}, {3}));  // the next tensor is not aligned
  file.tensors.emplace_back("double", Tensor::from<double>({0.1, 5e-324}, {2, 1}));
  file.tensors.emplace_back("bfloat", Tensor::from<bfloat16>({bfloat16(1.5f), bfloat16(-3)}, {2}));
  file.tensors.emplace_back("empty", Tensor({0, 5}, DType::int32));
  file.tensors.emplace_back("int", Tensor::from<int32_t>({INT32_MIN, 7}, {1, 2}));
  file.tensors.emplace_back("long", Tensor::from<int64_t>({INT64_MIN}, {1, 1, 1, 1, 1, 1}));
  file.tensors.emplace_back("unsigned", Tensor::from<uint64_t>({UINT64_MAX}, {}));
  file.tensors.emplace_back("layers.0.\"odd\"\n \xc3\xa9", Tensor::from<bool>({true, false, true}, {3}));
  file.tensors.emplace_back("last and empty", Tensor({3, 0}));
  file.metadata = {{"", "no key"}, {"format", "pt"}, {"\xc3\xa9\n", "\"\\\x01"}};
  return file;
}

TEST_CASE("tensors of every type return from a safetensors file bit for bit", "[io][safetensors]") {
  const TensorFile file = example();
  const std::string bytes = safetensors_bytes(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  CHECK(header % 8 == 0);
  CHECK(bytes[8] == '{');
  const TensorFile back = parse_safetensors(bytes, "there");
  CHECK(same(back, file));
  CHECK(back.where == "there");
  CHECK(safetensors_bytes(back) == bytes);
  // Written once with CAIRN_WRITE_GOLDEN=1; Python's package could read it.
  if (std::getenv("CAIRN_WRITE_GOLDEN")) write_safetensors(golden_folder + "cairn.safetensors", file);
  CHECK(bytes_of_file(golden_folder + "cairn.safetensors") == bytes);

  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", file);
  CHECK(bytes_of_file(folder / "a.safetensors") == bytes);
  CHECK(same(read_safetensors(folder / "a.safetensors"), file));
  CHECK_THAT(data_error([&] { read_safetensors(folder / "b.safetensors"); }), ContainsSubstring("b.safetensors"));

  CHECK(safetensors_bytes({}) == file_of("{}      "));
  CHECK(parse_safetensors(safetensors_bytes({}), "").tensors.empty());
}

TEST_CASE("a safetensors file with a missing or changed byte is rejected, or is another valid file",
          "[io][safetensors]") {
  const std::string whole = safetensors_bytes(example());
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    refused(whole.substr(0, size));
  }
  TensorFile file;
  file.tensors.emplace_back("a", Tensor::from<float>({1, 2}, {2}));
  file.tensors.emplace_back("b", Tensor::from<bool>({true}, {}));
  file.metadata = {{"k", "v"}};
  const std::string bytes = safetensors_bytes(file);
  int refusals = 0, others = 0;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int flip = 1; flip < 256; ++flip) {
      std::string changed = bytes;
      changed[at] = char(changed[at] ^ flip);
      try {
        const TensorFile read = parse_safetensors(changed, "x");
        ++others;
        // Spaces may have changed to other white space.
        if (same(read, file)) CHECK(std::isspace(static_cast<unsigned char>(changed[at])));
        CHECK(same(parse_safetensors(safetensors_bytes(read), "y"), read));  // valid, so it can be written
      } catch (const DataError&) {
        ++refusals;
      }
    }
  CHECK(refusals > 20000);
  CHECK(others > 9 * 255 / 2);  // changed bytes of the numbers
}

TEST_CASE("every float16 number is converted to float32", "[io][safetensors]") {
  std::string bytes = "u";  // a uint8 tensor, so that the next one is not aligned
  for (uint32_t bits = 0; bits < 65536; ++bits) bytes += {char(bits & 255), char(bits >> 8)};
  const auto all = parse_safetensors(file_of(R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                             R"("x":{"dtype":"F16","shape":[65536],"data_offsets":[1,131073]}})",
                                             bytes),
                                     "")
                       .at("x")
                       .to_vector<float>();
  int wrong = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double expected = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                       : std::ldexp(1024 + mantissa, exponent - 25);
    expected = std::copysign(expected, bits >> 15 ? -1 : 1);
    const float got = all[size_t(bits)];
    wrong += !(std::isnan(expected) ? std::isnan(got) : got == expected && std::signbit(got) == std::signbit(expected));
  }
  CHECK(wrong == 0);
}

TEST_CASE("an invalid safetensors file is rejected", "[io][safetensors]") {
  const auto length = [](uint64_t size) {
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + "{}";
  };
  // A header with one tensor named a.
  const auto entry = [](const std::string& json, size_t bytes) {
    return file_of("{\"a\":" + json + "}", std::string(bytes, '\0'));
  };
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& offsets, size_t bytes) {
    return entry("{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}", bytes);
  };
  // A file with two bytes of a tensor named a and two of one named b.
  const auto two = [](const std::string& offsets, size_t bytes) {
    return file_of(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" +
            offsets + "}}",
        std::string(bytes, '\0'));
  };
  const std::pair<std::string, const char*> table[] = {
      // The whole header.
      {"", "not a safetensors file: 0 bytes"},
      {length(3), "cut off: expected a header of 3 bytes, got 2"},
      {length(100000001), "expected at most 100000000"},
      {length(0), "expected a header that is a JSON object"},
      {file_of("[]"), "expected a header that is a JSON object"},
      {file_of(" {}"), "expected a header that is a JSON object"},
      {file_of("{}x"), "header: line 1, column 3: syntax error"},
      {file_of(std::string("{}\0", 3)), "expected a header that is a JSON object"},
      {file_of("{\"a\":" + std::string(1000000, '[')), "header: nested more than 64 deep"},
      {file_of("{\"\\u001b[31m" + std::string(100000, 'x') + "\":{}}"), "\"\\u001b[31mxx"},
      {file_of(R"({"__metadata__":{},"\u005f_metadata__":{}})"),
       "header: an object has the key \"__metadata__\" twice"},
      {file_of("{\"__metadata__\":1}"), "__metadata__: expected an object of strings"},
      {file_of("{\"__metadata__\":{\"k\":1}}"), "__metadata__: expected an object of strings"},
      // Shapes that overflow, and byte ranges.
      {one("\"F32\"", "[1,1,1,1,1,1,1]", "[0,4]", 4), "shape: more than 6 axes"},
      {one("\"F32\"", "[9223372036854775808]", "[0,4]", 4), "negative size"},
      {one("\"F32\"", "[0,4294967296,4294967296]", "[0,0]", 0), "too many elements"},
      {one("\"F64\"", "[4611686018427387904]", "[0,8]", 8), "8 bytes are not those of F64 of shape [46"},
      {one("\"F32\"", "[4611686018427387904]", "[0,0]", 0), "0 bytes are not those of F32 of shape [46"},
      {one("\"F32\"", "[2]", "[8,0]", 8), "data_offsets [8, 0]: not within the 8 bytes"},
      {one("\"F32\"", "[2]", "[0,8]", 7), "not within the 7 bytes"},
      {one("\"F32\"", "[2]", "[18446744073709551608,18446744073709551615]", 8), "not within"},
      {one("\"F32\"", "[2]", "[0,7]", 8), "7 bytes are not those of F32 of shape [2]"},
      {one("\"F32\"", "[2]", "[0,9]", 9), "9 bytes are not those of F32 of shape [2]"},
      {one("\"F16\"", "[2]", "[0,8]", 8), "8 bytes are not those of F16 of shape [2]"},
      {two("[1,3]", 3), "tensor \"b\": begins at byte 1 after the header, expected 2, where the tensors before it end"},
      {two("[3,5]", 5), "tensor \"b\": begins at byte 3 after the header, expected 2, where the tensors before it end"},
      {two("[2,4]", 5), "1 bytes at the end belong to no tensor"},
      {file_of("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", "\1\1\2"),
       "BOOL: a byte that is neither 0 nor 1"},
      {one("\"I8\"", "[1]", "[0,1]", 1), "tensor \"a\": dtype: expected one of F16, F32, F64, BF16"},
      {one("\"\\u0000\"", "[1]", "[0,1]", 1), "got \"\\u0000\""},
      // JSON types that the format does not allow.
      {entry("null", 0), "tensor \"a\": expected an object with"},
      {entry("{\"dtype\":\"U8\",\"shape\":[]}", 1), "tensor \"a\": expected an object with"},
      {one("7", "[1]", "[0,4]", 4), "tensor \"a\": expected an object with"},
      {one("\"F32\"", "[-1]", "[0,4]", 4), "tensor \"a\": expected an object with"},
      {one("\"F32\"", "[true]", "[0,4]", 4), "tensor \"a\": expected an object with"},
      {one("\"F32\"", "[2]", "[0]", 8), "tensor \"a\": expected an object with"},
      {one("\"F32\"", "[2]", "[0,8,8]", 8), "tensor \"a\": expected two data_offsets, got 3"},
      {one("\"F32\"", "[2]", "[-1,8]", 8), "tensor \"a\": expected an object with"},
  };
  for (const auto& [bytes, message] : table) CHECK_THAT(refused(bytes), ContainsSubstring(message));
}

TEST_CASE("tensors may be in any order, and the form of a safetensors header does not matter", "[io][safetensors]") {
  const std::string a = R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]})",
                    b = R"("b":{"dtype":"I32","shape":[],"data_offsets":[0,4]})",
                    c = R"("c":{"dtype":"I32","shape":[0,3],"data_offsets":[4,4]})";
  const auto parsed = [&](const std::string& header) {
    return parse_safetensors(file_of(header, std::string(28, '\1')), "x");
  };
  const TensorFile file = parsed("{" + a + "," + c + "," + b + "}");
  REQUIRE(file.tensors.size() == 3);
  CHECK(file.tensors[0].first == "b");
  CHECK(file.at("a").shape() == Shape{2, 3});
  CHECK(file.at("b").item() == 0x01010101);
  CHECK(file.at("c").shape() == Shape{0, 3});
  const std::string spaced = R"({ "\u0061":{"data_offsets":[4, 28],"shape":[2,3],"dtype":"F32"},"__metadata__":{},)";
  CHECK(same(parsed(spaced + b + "," + c + "}\n "), file));
}

TEST_CASE("tensors that a safetensors file cannot hold are not written", "[io][safetensors]") {
  const Tensor x = Tensor::zeros({1});
  const auto bytes_of = [](std::vector<std::pair<std::string, Tensor>> tensors) {
    return safetensors_bytes({std::move(tensors), {}, ""});
  };
  CHECK_THROWS_WITH(bytes_of({{"__metadata__", x}}), ContainsSubstring("cannot be named \"__metadata__\""));
  CHECK_THROWS_WITH(bytes_of({{"a", x}, {"b", x}, {"a", x}}), ContainsSubstring("two tensors named \"a\""));
  CHECK_THROWS_WITH(bytes_of({{"a", Tensor()}}), ContainsSubstring("was never given a value"));
  CHECK_THROWS_WITH(bytes_of({{"a\xff", x}}), ContainsSubstring("in UTF-8, got \"\\\"a\\ufffd"));
  CHECK_THROWS_WITH(safetensors_bytes({{}, {{"key", "\xff"}}, ""}), ContainsSubstring("metadata in UTF-8"));
}

TEST_CASE("a file that Python's safetensors wrote is read, and written again byte for byte", "[io][safetensors]") {
  const std::string bytes = bytes_of_file(golden_folder + "python.safetensors");
  REQUIRE(!bytes.empty());
  const TensorFile file = parse_safetensors(bytes, "python.safetensors");
  CHECK(safetensors_bytes(file) == bytes);
  CHECK(file.metadata == std::map<std::string, std::string>{{"format", "np"}});
  const auto check_values = [&]<class T>(const char* name, const Shape& shape, const std::vector<T>& values) {
    INFO(name);
    CHECK(file.at(name).shape() == shape);
    CHECK(file.at(name).to_vector<T>() == values);
  };
  REQUIRE(file.tensors.size() == 10);
  check_values("float32", {2, 3}, std::vector<float>{0, 0.5f, 1, 1.5f, -2, 1e-45f});
  check_values("float64", {2}, std::vector<double>{0.1, 5e-324});
  check_values("int32", {2, 1}, std::vector<int32_t>{INT32_MIN, 7});
  check_values("int64", {1, 1, 1, 1, 1, 1}, std::vector<int64_t>{INT64_MIN});
  check_values("uint64", {}, std::vector<uint64_t>{UINT64_MAX});
  check_values("uint8", {3}, std::vector<uint8_t>{1, 2, 255});
  check_values("bool", {3}, std::vector<bool>{true, false, true});
  check_values("empty", {0, 5}, std::vector<float>{});
  check_values("layers.0.\xc3\xa9\n\"", {1}, std::vector<float>{3});
  CHECK(file.at("bfloat16").cast(DType::float32).to_vector<float>() == std::vector<float>{1.5f, -3});
}
