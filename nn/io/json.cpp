#include "nn/io/json.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "nn/io/file.h"

namespace cairn {

using Json = nlohmann::ordered_json;

Json parse_json(std::string_view text, const std::string& where) try {
  // Versions of the library have different words for it.
  check<DataError>(text.find_first_not_of(" \t\r\n") != std::string_view::npos, where, ": expected JSON, got nothing");
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    constexpr int deepest = 64;  // copies and prints of JSON are recursive
    check<DataError>(depth <= deepest, where, ": nested more than ", deepest, " deep");
    return true;
  };
  return Json::parse(text, check_depth);
} catch (const Json::parse_error& error) {
  // "[json.exception.parse_error.101] parse error at line 3, column 7: syntax error ...; last read: '...'; expected
  // ...", of which the end repeats the text.
  std::string_view reason = error.what();
  reason.remove_prefix(std::min(reason.find("line "), reason.size()));
  throw DataError(concat(where, ": ", reason.substr(0, reason.find("; last read: '"))));
} catch (const Json::out_of_range&) {
  throw DataError(concat(where, ": a number too large for a double"));
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void append(std::string& text, const Quoted& quoted) {
  constexpr size_t longest = 80;
  const std::string shown(quoted.text.substr(0, longest));
  text += Json(shown).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (quoted.text.size() > longest) text += "...";
}

Json read_optional_object(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Json::object();
  const Json json = read_json(path);
  check<DataError>(json.is_object(), path, ": expected an object, got ", json.type_name());
  return json;
}

void expect_one_of(const Json& object, const std::string& where, const std::string& key, const Json& accepted) {
  const Json value = object.value(key, Json());
  check<DataError>(value.is_null() || std::count(accepted.begin(), accepted.end(), value) > 0, where, ": ", key,
                   ": expected ", accepted.size() == 1 ? accepted[0].dump() : "one of " + accepted.dump(), ", got ",
                   value.dump(-1, ' ', true).substr(0, 80), "; nothing else is supported");
}

}  // namespace cairn
