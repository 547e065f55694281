#include "nn/io/json.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/storage.h"
#include "nn/io/hash.h"
#include "tests/io/io_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;

static std::string refused(std::string_view text) {
  return data_error([&] { parse_json(text, "file.json"); });
}

TEST_CASE("invalid JSON is rejected with its position", "[io][json]") {
  const std::string open(64, '['), close(64, ']'), large(2000000, 'k');
  const std::pair<std::string, const char*> table[] = {
      {" \n ", "file.json: expected JSON, got nothing"},
      {"{\n  \"a\": 1,\n  \"b\" 2}", "file.json: line 3, column 7: syntax error while parsing object separator"},
      {"[1, 2", "line 1, column 6: syntax error while parsing array - unexpected end of input"},
      {"[1] 2", "line 1, column 5: syntax error while parsing value - unexpected number literal; expected end of"},
      {"\"\xff\"", "line 1, column 2: syntax error while parsing value - invalid string"},
      {"[1, 1e999]", "file.json: a number too large for a double"},
      {open + "[1]" + close, "file.json: nested more than 64 deep"},
      {std::string(1000000, '['), "nested more than 64 deep"},
      {std::string("{}\0{}", 5), "file.json: expected JSON, got a NUL byte"},
      {R"([{"a": {"b": 1}, "b": [{"b": 2}], "\u0061": 3}])", "file.json: an object has the key \"a\" twice"},
      // data_error() also checks that messages contain neither megabytes nor control characters.
      {"\"" + large, "missing closing quote"},
      {"{\"a\x1b[31m\": 1}", "control character"},
      {"\"'; expected " + large, "missing closing quote"},
  };
  for (const auto& [text, message] : table) CHECK_THAT(refused(text), ContainsSubstring(message));
  const std::string fits =
      "{\"z\":" + open.substr(1) + "1,-2,2.5,18446744073709551615" + close.substr(1) + ",\"a\":null}";
  CHECK(parse_json(fits, "").dump() == fits);
  const std::string_view too_long("0", available_memory(Device::cpu) / 32 + 1);  // no byte is read
  CHECK_THROWS_AS(parse_json(too_long, "file.json"), OutOfMemory);
}

TEST_CASE("text from outside is short and printable in messages", "[io][json]") {
  std::string text = "a";
  const auto quoted = in_quotes(text);  // evaluated when the message is written, not before
  text[0] = 'b';
  CHECK(concat(quoted) == "\"b\"");
  CHECK(concat(in_quotes("a\n\"\xff\x1b\x7f")) == "\"a\\n\\\"\\ufffd\\u001b\\u007f\"");
  CHECK(concat(in_quotes(std::string(80, 'x'))) == '"' + std::string(80, 'x') + '"');
  CHECK(concat(in_quotes(std::string(81, 'x'))) == '"' + std::string(80, 'x') + "\"...");
  CHECK(as_utf8("a\xC3\xA9\xE4\xB8\xAD\xFF\xC3") == "a\xC3\xA9\xE4\xB8\xAD\uFFFD\uFFFD");
}

TEST_CASE("hashes equal those of xxh128sum", "[io]") {
  // The output of xxh128sum 0.8.1 for files with these bytes.
  CHECK(xxh128("") == "99aa06d3014798d86001c324468d497f");
  CHECK(xxh128("abc") == "06b05ab6733a618578af5f94892f3950");
  std::string bytes(1000, 0);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i % 251);
  CHECK(xxh128(bytes) == "18bf41bc8229e27733ef703fb2b20ed1");
}
