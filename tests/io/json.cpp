#include "nn/io/json.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <nlohmann/json.hpp>
#include <utility>

#include "nn/io/hash.h"
#include "tests/io/io_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::ordered_json;

static std::string refused(std::string_view text) {
  return data_error([&] { parse_json(text, "file.json"); });
}

TEST_CASE("JSON is read with its order and its types", "[io][json]") {
  const Json json = parse_json(
      " {\"z\": [1, -2, 2.5, 1e3], \"a\": {\"t\": true, \"f\": false, \"n\": null},\r\n\t\"\": "
      "\"\\u00e9\xc3\xa9\\n\"} ",
      "");
  CHECK(json.dump() ==
        "{\"z\":[1,-2,2.5,1000.0],\"a\":{\"t\":true,\"f\":false,\"n\":null},\"\":\"\xc3\xa9\xc3\xa9\\n\"}");
  CHECK(json["z"][0].is_number_unsigned());
  CHECK(json["z"][1].is_number_integer());
  CHECK(json["z"][3].is_number_float());
  CHECK(json.at("a").at("t") == true);
  for (const char* scalar : {"1", "\"x\"", "null", "true", "[]", "{}", "[[],{}]"})
    CHECK(parse_json(scalar, "").dump() == scalar);
  CHECK(parse_json("18446744073709551615", "").get<uint64_t>() == UINT64_MAX);
  CHECK(parse_json("-9223372036854775808", "").get<int64_t>() == INT64_MIN);
  CHECK(parse_json("1e-999", "") == 0.0);
}

TEST_CASE("numbers come back bit for bit", "[io][json]") {
  for (const double x : {0.1, -0.0, 5e-324, 1.7976931348623157e308, 1.0 / 3, 2.5e-4}) {
    const double back = parse_json(Json(x).dump(), "").get<double>();
    CHECK(std::memcmp(&back, &x, sizeof(x)) == 0);
  }
}

TEST_CASE("what is not JSON, or guessed at by other parsers, is refused with line and column", "[io][json]") {
  const std::string open(64, '['), close(64, ']');
  const std::pair<std::string, const char*> table[] = {
      {"", "line 1, column 1: expected JSON, got nothing"},
      {" \n ", "line 2, column 2: expected JSON, got nothing"},
      {"{\n  \"a\": 1,\n  \"b\" 2\n}", "line 3, column 7: syntax error while parsing object separator"},
      {"[1, 2", "line 1, column 6: syntax error while parsing array - unexpected end of input"},
      {"[1] 2",
       "line 1, column 5: syntax error while parsing value - unexpected number literal; expected end of input"},
      {"{} x", "line 1, column 4: syntax error while parsing value - invalid literal"},
      {std::string("{}\0x", 4), "line 1, column 3: a NUL byte"},
      {std::string("\"a\0\"", 4), "line 1, column 3: a NUL byte"},
      {"{\"a\": 1,\n \"b\": 2, \"a\": 3}", "line 2, column 12: the key \"a\" a second time in the same object"},
      {"{\"a\": 1, \"\\u0061\": 3}", "the key \"a\" a second time"},
      {"{\"a\": {\"b\": 1, \"b\": 1}}", "the key \"b\" a second time"},
      {"[18446744073709551616]", "line 1, column 22: a whole number beyond 64 bits"},
      {"-9223372036854775809", "a whole number beyond 64 bits"},
      {"[1, 1e999]", "a number too large for a double"},
      {"-1e999", "a number too large for a double"},
      {"[1" + std::string(100000, '0') + "e1]", "too large"},
      {"[" + open + close + "]", "column 65: nested more than 64 deep"},
      {std::string(1000000, '['), "nested more than 64 deep"},
  };
  for (const auto& [text, message] : table) CHECK_THAT(refused(text), ContainsSubstring(message));
  CHECK(parse_json(open + close, "").size() == 1);
  CHECK(parse_json("{\"a\": {\"a\": 1}, \"b\": {\"a\": [{\"a\": 1}, {\"a\": 2}]}}", "").size() == 2);
  for (const char* text : {"{",           "[",         "\"a",         "{\"a\"",       "{\"a\":",
                           "{\"a\":1",    "{\"a\":1,", "{a:1}",       "{'a':1}",      "[1,]",
                           "{\"a\":1,}",  "[,1]",      "nul",         "tru",          "True",
                           "NaN",         "Infinity",  "-",           "+1",           "01",
                           "1.",          ".5",        "1e",          "0x10",         "\"\t\"",
                           "\"\\x\"",     "\"\\u12\"", "\"\\ud800\"", "// c\n1",      "/* c */1",
                           "1 2",         "]",         "}",           "[}",           "{]",
                           "\xff",        "\"\xff\"",  "\"\xc3\"",    "\"\xc0\xaf\"", "\"\xed\xa0\x80\"",
                           "\xff\xfe{\0}"}) {
    INFO(text);
    CHECK_THAT(refused(text), ContainsSubstring("file.json: line 1, column "));
  }
}

TEST_CASE("messages repeat neither megabytes nor control characters", "[io][json]") {
  // data_error() looks at length and characters.
  const std::string large(2000000, 'k'), control = "\\u001b[31m\\u0000\\u009b\\n";
  refused("{\"" + large + "\": 1, \"" + large + "\": 2}");
  refused("{\"" + control + "\": 1, \"" + control + "\": 2}");
  refused("\"" + large);
  refused("[" + large);
  refused("\"" + large + "\xff\"");
  refused("{\"a\x1b[31m\": 1}");
  refused("\x1b\x9b\x7f");
  refused("\"'; expected " + large);  // what the parser's own message has behind the text
  std::string text = "a";
  const auto quoted = in_quotes(text);  // when the message is written, not before
  text[0] = 'b';
  CHECK(concat(quoted) == "\"b\"");
  CHECK(concat(in_quotes("a\n\"\xff\x1b\x7f")) == "\"a\\n\\\"\\ufffd\\u001b\\u007f\"");
  CHECK(concat(in_quotes(std::string(80, 'x'))) == '"' + std::string(80, 'x') + '"');
  CHECK(concat(in_quotes(std::string(81, 'x'))) == '"' + std::string(80, 'x') + "\"...");
}

TEST_CASE("an object of many keys is read in a time that does not grow with its square", "[io][json]") {
  // 3e5 keys: a search through all for each would take minutes and run into the time limit.
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += concat(i ? "," : "", "\"key", i, "\":", i);
  CHECK(parse_json(text + "}", "").size() == 300000);
}

TEST_CASE("a JSON file is named in what is wrong with it", "[io][json]") {
  const TemporaryFolder folder;
  put_file(folder / "a.json", "{\"a\": [1]}");
  CHECK(read_json(folder / "a.json").dump() == "{\"a\":[1]}");
  put_file(folder / "a.json", "{\"a\": [1}");
  CHECK_THAT(data_error([&] { read_json(folder / "a.json"); }),
             ContainsSubstring((folder / "a.json").string() + ": line 1, column 9"));
  CHECK_THAT(data_error([&] { read_json(folder / "b.json"); }),
             ContainsSubstring("b.json") && ContainsSubstring("No such file"));
}

TEST_CASE("hashes are those of xxh128sum", "[io]") {
  // Printed by xxh128sum 0.8.1 for files of these bytes.
  CHECK(xxh128("") == "99aa06d3014798d86001c324468d497f");
  CHECK(xxh128("abc") == "06b05ab6733a618578af5f94892f3950");
  std::string bytes(1000, 0);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i % 251);
  CHECK(xxh128(bytes) == "18bf41bc8229e27733ef703fb2b20ed1");
}
