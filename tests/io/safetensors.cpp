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

// A file of that header and those bytes behind it.
static std::string file_of(const std::string& header, const std::string& numbers = "") {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + numbers;
}
static std::string refused(const std::string& bytes) {
  // A copy of exactly that size, so that the address sanitizer sees a read beyond it.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  const std::string message = data_error([&] { parse_safetensors({exact.data(), exact.size()}, "x.safetensors"); });
  CHECK_THAT(message, ContainsSubstring("x.safetensors: "));
  return message;
}
// A file of one tensor named a.
static std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t bytes) {
  return file_of("{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}",
                 std::string(bytes, '\0'));
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

// Every element type, empty tensors, a scalar, the highest rank, names and values that are odd.
static TensorFile example() {
  TensorFile file;
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  file.tensors.emplace_back("float", Tensor::from<float>({1.5f, -0.0f, 1e-45f, INFINITY, nan, -2}, {2, 3}));
  file.tensors.emplace_back("bytes", Tensor::from<uint8_t>({1, 2, 255}, {3}));  // what follows is not aligned
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

TEST_CASE("tensors of every type come back from a safetensors file bit for bit", "[io][safetensors]") {
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

  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", file);
  CHECK(bytes_of_file(folder / "a.safetensors") == bytes);
  CHECK(same(read_safetensors(folder / "a.safetensors"), file));
  CHECK_THAT(data_error([&] { read_safetensors(folder / "b.safetensors"); }), ContainsSubstring("b.safetensors"));

  CHECK(safetensors_bytes({}) == file_of("{}      "));
  CHECK(parse_safetensors(safetensors_bytes({}), "").tensors.empty());
}

TEST_CASE("a tensor that shares its storage is written as its own part alone", "[io][safetensors]") {
  const Tensor whole = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  TensorFile file;
  file.tensors.emplace_back("rows", whole.slice(1, 2));
  CHECK(parse_safetensors(safetensors_bytes(file), "").at("rows").to_vector<float>() == std::vector<float>{3, 4});
}

TEST_CASE("bytes anywhere in memory are read", "[io][safetensors]") {
  const TensorFile file = example();
  for (size_t shift = 0; shift < 9; ++shift) {
    const std::string moved = std::string(shift, 'x') + safetensors_bytes(file);
    CHECK(same(parse_safetensors(std::string_view(moved).substr(shift), ""), file));
  }
}

TEST_CASE("a missing tensor's message says which name is near", "[io][safetensors]") {
  TensorFile file = example();
  file.where = "w.safetensors";
  CHECK(file.at("int").size(1) == 2);
  CHECK(file.find("intt") == nullptr);
  CHECK(data_error([&] { file.at("doubel"); }) == "w.safetensors: no tensor \"doubel\"; did you mean \"double\"?");
  CHECK(data_error([&] { file.at("quite another"); }) == "w.safetensors: no tensor \"quite another\"");
}

TEST_CASE("a safetensors file that is cut off anywhere is refused", "[io][safetensors]") {
  const std::string bytes = safetensors_bytes(example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    refused(bytes.substr(0, size));
  }
  CHECK_THAT(refused(bytes + '\0'), ContainsSubstring("1 bytes at the end belong to no tensor"));
}

TEST_CASE("any byte of a safetensors file may change: it is refused, or is another file", "[io][safetensors]") {
  TensorFile file;
  file.tensors.emplace_back("a", Tensor::from<float>({1, 2}, {2}));
  file.tensors.emplace_back("b", Tensor::from<bool>({true}, {}));
  file.metadata = {{"k", "v"}};
  const std::string bytes = safetensors_bytes(file);
  int refusals = 0, others = 0;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int flip = 1; flip < 256; ++flip) {
      std::vector<char> changed(bytes.begin(), bytes.end());
      changed[at] = char(changed[at] ^ flip);
      try {
        const TensorFile read = parse_safetensors({changed.data(), changed.size()}, "x");
        ++others;
        // Spaces may have become other white space.
        if (same(read, file)) CHECK(std::isspace(static_cast<unsigned char>(changed[at])));
        CHECK(same(parse_safetensors(safetensors_bytes(read), "y"), read));  // well-formed, so it can be written
      } catch (const DataError&) {
        ++refusals;
      }
    }
  CHECK(refusals > 20000);
  CHECK(others > 9 * 255 / 2);  // the numbers themselves
}

TEST_CASE("float16 becomes float32, every number of it", "[io][safetensors]") {
  std::string bytes(7, '\x11');  // a tensor of uint8, so that what follows is not aligned
  for (uint32_t bits = 0; bits < 65536; ++bits) bytes += {char(bits & 255), char(bits >> 8)};
  bytes += std::string("\0\x3c\0\xc0", 4) + std::string("\0\0\x80\x3f", 4);  // 1 and -2, then the float32 1
  const TensorFile file =
      parse_safetensors(file_of(R"({"f":{"dtype":"F32","shape":[],"data_offsets":[131083,131087]},)"
                                R"("all":{"dtype":"F16","shape":[65536],"data_offsets":[7,131079]},)"
                                R"("two":{"dtype":"F16","shape":[2,1],"data_offsets":[131079,131083]},)"
                                R"("u":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})",
                                bytes),
                        "");
  CHECK(file.at("f").item() == 1);
  CHECK(file.at("two").to_vector<float>() == std::vector<float>{1, -2});
  CHECK(file.at("two").shape() == Shape{2, 1});
  const auto all = file.at("all").to_vector<float>();
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

TEST_CASE("a safetensors file that is not as it should be is refused", "[io][safetensors]") {
  const auto length = [](uint64_t size) {
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + "{}";
  };
  const auto names = [](const std::string& first, const std::string& second) {
    const std::string entry = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    return file_of("{\"" + first + "\":" + entry + ",\"" + second + "\":" + entry + "}");
  };
  const auto two = [](const char* shape, const char* first, const char* second, size_t bytes) {
    const auto entry = [](const char* s, const char* range) {
      return concat("{\"dtype\":\"U8\",\"shape\":[", s, "],\"data_offsets\":[", range, "]}");
    };
    return file_of(concat("{\"a\":", entry("2", first), ",\"b\":", entry(shape, second), "}"),
                   std::string(bytes, '\0'));
  };
  const std::pair<std::string, const char*> table[] = {
      // The header as a whole.
      {"", "not a safetensors file: 0 bytes"},
      {length(3), "cut off: expected a header of 3 bytes, got 2"},
      {length((1 << 24) + 1), "expected at most 16777216"},
      {length(UINT64_MAX), "18446744073709551615"},
      {length(uint64_t{1} << 63), "expected at most"},
      {length(0), "begins with {"},
      {file_of("[]"), "begins with {"},
      {file_of(" {}"), "begins with {"},
      {file_of("\xef\xbb\xbf{}"), "begins with {"},
      {file_of("{\"a\""), "header: line 1, column 5"},
      {file_of("{}x"), "header: line 1, column 3"},
      {file_of(std::string("{}\0", 3)), "NUL"},
      {file_of("{\"a\":" + std::string(1000000, '[')), "nested more than 64 deep"},
      // Names and metadata.
      {names("a", "a"), "the key \"a\" a second time"},
      {names("a", "\\u0061"), "a second time"},
      {names("a", ""), "empty or contains NUL"},
      {names("a", "a\\u0000b"), "\"a\\u0000b\": a name that"},
      {file_of("{\"\\u001b[31m" + std::string(100000, 'x') + "\":{}}"), "\"\\u001b[31mxx"},
      {file_of("{\"__metadata__\":1}"), "__metadata__: expected an object of strings"},
      {file_of("{\"__metadata__\":[]}"), "__metadata__: expected an object of strings"},
      {file_of("{\"__metadata__\":null}"), "__metadata__: expected an object of strings"},
      {file_of("{\"__metadata__\":{\"k\":1}}"), "__metadata__: expected an object of strings"},
      {file_of("{\"__metadata__\":{\"k\":[\"x\"]}}"), "__metadata__: expected an object of strings"},
      // Shapes that overflow, and ranges of bytes.
      {one("\"F32\"", "[1,1,1,1,1,1,1]", "[0,4]", 4), "shape: 7 axes, expected at most 6"},
      {one("\"F32\"", "[9223372036854775808]", "[0,4]", 4), "too many elements"},
      {one("\"F32\"", "[4294967296,4294967296]", "[0,4]", 4), "too many elements"},
      {one("\"F32\"", "[0,4294967296,4294967296]", "[0,0]", 0), "too many elements"},
      {one("\"F64\"", "[4611686018427387904]", "[0,8]", 8), "too many bytes"},
      {one("\"F32\"", "[4611686018427387904]", "[0,0]", 0), "too many bytes"},
      // Fits, but nobody has that memory: refused before it is asked for.
      {one("\"U8\"", "[4611686018427387903]", "[0,1]", 1), "1 bytes, expected 4611686018427387903"},
      {one("\"F32\"", "[2]", "[8,0]", 8), "data_offsets [8, 0]: not within the 8 bytes"},
      {one("\"F32\"", "[2]", "[0,8]", 7), "not within the 7 bytes"},
      {one("\"F32\"", "[2]", "[8,16]", 8), "not within the 8 bytes"},
      {one("\"F32\"", "[2]", "[18446744073709551608,18446744073709551615]", 8), "not within"},
      {one("\"F32\"", "[2]", "[0,7]", 8), "7 bytes, expected 8 for F32 of shape [2]"},
      {one("\"F16\"", "[2]", "[0,8]", 8), "8 bytes, expected 4 for F16 of shape [2]"},
      {one("\"F32\"", "[0]", "[0,4]", 4), "4 bytes, expected 0"},
      {one("\"F32\"", "[]", "[0,0]", 0), "0 bytes, expected 4"},
      // Of two tensors, [2] and another.
      {two("2", "0,2", "1,3", 3), "the bytes from 1 on are those of two tensors"},
      {two("2", "0,2", "0,2", 2), "two tensors"},
      {two("0", "0,2", "1,1", 2), "two tensors"},
      {two("2", "0,2", "3,5", 5), "bytes 2 to 3 behind the header belong to no tensor"},
      {one("\"U8\"", "[1]", "[1,2]", 2), "bytes 0 to 1"},
      {one("\"U8\"", "[1]", "[0,1]", 9), "8 bytes at the end belong to no tensor"},
      {file_of("{}", "x"), "1 bytes at the end"},
      {file_of("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", "\1\1\2"),
       "BOOL: a byte that is neither 0 nor 1"},
  };
  for (const auto& [bytes, message] : table) CHECK_THAT(refused(bytes), ContainsSubstring(message));
  for (const char* dtype : {"I8", "I16", "U16", "U32", "C64", "F8_E4M3", "F4", "", "f32", "F32 ", "F128", "\\u0000"})
    CHECK_THAT(refused(one(concat('"', dtype, '"'), "[1]", "[0,2]", 2)),
               ContainsSubstring("tensor \"a\": dtype: expected one of F16, F32, F64, BF16"));
  // Of another type than the format has.
  const auto malformed = ContainsSubstring("tensor \"a\": expected ");
  for (const char* entry : {"1", "null", "[]", "{}", "\"F32\"", "{\"dtype\":\"U8\",\"shape\":[]}",
                            "{\"dtype\":\"U8\",\"shape\":[],\"offsets\":[0,1]}",
                            "{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"strides\":[1]}"})
    CHECK_THAT(refused(file_of(concat("{\"a\":", entry, "}"), "x")), malformed);
  for (const char* dtype : {"7", "null", "[\"F32\"]"}) CHECK_THAT(refused(one(dtype, "[1]", "[0,4]", 4)), malformed);
  for (const char* shape : {"8", "null", "{}", "[-1]", "[1.0]", "[1e0]", "[\"1\"]", "[null]", "[true]", "[[1]]"})
    CHECK_THAT(refused(one("\"F32\"", shape, "[0,4]", 4)), malformed);
  for (const char* range : {"0", "null", "[]", "[0]", "[0,8,8]", "[-1,8]", "[0,8.0]", "[0,\"8\"]", "[false,true]"})
    CHECK_THAT(refused(one("\"F32\"", "[2]", range, 8)), malformed);
}

TEST_CASE("tensors may be in any order, and the form of a safetensors header does not matter", "[io][safetensors]") {
  const auto parsed = [&](const std::string& header) {
    return parse_safetensors(file_of(header, std::string(28, '\1')), "x");
  };
  const std::string b = R"("b":{"dtype":"I32","shape":[],"data_offsets":[0,4]})",
                    empty = R"("c":{"dtype":"I32","shape":[0,3],"data_offsets":[4,4]})";
  const TensorFile plain = parsed(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)" + b + "}");
  REQUIRE(plain.tensors.size() == 2);
  CHECK(plain.at("a").shape() == Shape{2, 3});
  CHECK(plain.at("b").item() == 0x01010101);
  const std::string same_header[] = {
      R"({ "a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)" + b + "}\n ",
      R"({"a":{"shape":[2,3],"data_offsets":[4,28],"dtype":"F32"},)" + b + "}",
      R"({"\u0061":{"dtype":"F32","shape":[2, 3],"data_offsets":[4,28]},)" + b + "}",
      R"({"__metadata__":{},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)" + b + "}",
  };
  for (const std::string& header : same_header) CHECK(same(parsed(header), plain));
  const TensorFile three =
      parsed("{" + empty + R"(,"a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)" + b + "}");
  CHECK(three.tensors[0].first == "c");
  CHECK(three.at("c").shape() == Shape{0, 3});
}

TEST_CASE("a hostile safetensors header costs no more than its size", "[io][safetensors]") {
  // 16 MB: a search through all names for each would take hours.
  std::string header = "{";
  for (int i = 0; header.size() < 15'000'000; ++i) header += concat(i ? "," : "", "\"", i, "\":0");
  CHECK_THAT(refused(file_of(header + "}")), ContainsSubstring("tensor \"0\": expected an object"));
}

TEST_CASE("what a safetensors file cannot hold is not written", "[io][safetensors]") {
  const auto not_written = [](std::initializer_list<std::pair<std::string, Tensor>> tensors) {
    try {
      TensorFile file;
      file.tensors = tensors;
      safetensors_bytes(file);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Tensor x = Tensor::zeros({1});
  CHECK_THAT(not_written({{"", x}}), ContainsSubstring("neither empty"));
  CHECK_THAT(not_written({{std::string("a\0b", 3), x}}), ContainsSubstring("NUL"));
  CHECK_THAT(not_written({{"__metadata__", x}}), ContainsSubstring("__metadata__"));
  CHECK_THAT(not_written({{"a", x}, {"b", x}, {"a", x}}), ContainsSubstring("two tensors named \"a\""));
  CHECK_THAT(not_written({{"\xff", x}}), ContainsSubstring("is not UTF-8"));
  CHECK_THAT(not_written({{"a", Tensor()}}), ContainsSubstring("was never given a value"));
  TensorFile file;
  file.metadata = {{"k", "\xc3"}};
  CHECK_THROWS_WITH(safetensors_bytes(file), ContainsSubstring("is not UTF-8"));
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

TEST_CASE("the file that Cairn writes is the one it has always written", "[io][safetensors]") {
  const std::string golden = golden_folder + "cairn.safetensors";
  // Made once with CAIRN_WRITE_GOLDEN=1; Python's safetensors reads it in tests/io/safetensors_interop.py.
  if (std::getenv("CAIRN_WRITE_GOLDEN")) write_safetensors(golden, example());
  CHECK(bytes_of_file(golden) == safetensors_bytes(example()));
}
