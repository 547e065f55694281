#include "nn/io/json.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "nn/io/file.h"

namespace cairn {

using Json = nlohmann::ordered_json;

template <class AnyJson>
static AnyJson parse(std::string_view text, const std::string& where) try {
  // Versions of the library have different words for it.
  check<DataError>(text.find_first_not_of(" \t\r\n") != std::string_view::npos, where, ": expected JSON, got nothing");
  check<DataError>(text.find('\0') == std::string_view::npos, where, ": expected JSON, got a NUL byte");
  using Event = typename AnyJson::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check_event = [&](int depth, Event event, AnyJson& value) {
    constexpr int deepest = 64;  // copies and prints of JSON are recursive
    check<DataError>(depth <= deepest, where, ": nested more than ", deepest, " deep");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event != Event::key) return true;
    const auto& key = value.template get_ref<const std::string&>();
    check<DataError>(keys.back().insert(key).second, where, ": an object has the key ", in_quotes(key),
                     " twice; leave out one of them");
    return true;
  };
  return AnyJson::parse(text, check_event);
} catch (const typename AnyJson::parse_error& error) {
  // "[json.exception.parse_error.101] parse error at line 3, column 7: syntax error ...; last read: '...'; expected
  // ...", of which the end repeats the text.
  std::string_view reason = error.what();
  reason.remove_prefix(std::min(reason.find("line "), reason.size()));
  throw DataError(concat(where, ": ", reason.substr(0, reason.find("; last read: '"))));
} catch (const typename AnyJson::out_of_range&) {
  throw DataError(concat(where, ": a number too large for a double"));
}

Json parse_json(std::string_view text, const std::string& where) { return parse<Json>(text, where); }
nlohmann::json parse_sorted_json(std::string_view text, const std::string& where) {
  return parse<nlohmann::json>(text, where);
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

bool is_utf8(const std::string& text) try { return !Json(text).dump().empty(); } catch (const Json::type_error&) {
  return false;
}

std::string printed(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void append(std::string& text, const Quoted& quoted) {
  constexpr size_t longest = 80;
  const std::string shown(quoted.text.substr(0, longest));
  text += Json(shown).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (quoted.text.size() > longest) text += "...";
}

Json read_optional_object(const std::filesystem::path& path) {
  std::error_code error;
  // Not exists(): a link to nothing, or a folder that cannot be read, is damage.
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found)
    return Json::object();
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
