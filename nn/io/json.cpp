#include "nn/io/json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/storage.h"
#include "nn/io/file.h"

namespace cairn {

namespace {

// Builds a value from what the library's parser finds. Its own builder with checks takes time with the square of an
// object's members (https://github.com/nlohmann/json/issues/5457), and so does its insertion into an ordered object.
struct Builder {
  const std::string& where;
  Json value{};
  std::vector<Json*> open{};                  // the arrays and objects around what comes next
  std::vector<std::set<std::string>> keys{};  // of each of them

  bool add(Json next) {
    if (open.empty())
      value = std::move(next);
    else if (open.back()->is_array())
      open.back()->push_back(std::move(next));
    else
      open.back()->back() = std::move(next);
    return true;
  }
  bool enter(Json next) {
    constexpr size_t deepest = 64;  // copies and prints of JSON are recursive
    check<DataError>(open.size() < deepest, where, ": nested more than ", deepest, " deep");
    add(std::move(next));
    open.push_back(open.empty() ? &value : &open.back()->back());
    keys.emplace_back();
    return true;
  }

  // The parser calls these.
  bool null() { return add(nullptr); }
  bool boolean(bool next) { return add(next); }
  bool number_integer(int64_t next) { return add(next); }
  bool number_unsigned(uint64_t next) { return add(next); }
  bool number_float(double next, const std::string&) { return add(next); }
  bool string(std::string& next) { return add(std::move(next)); }
  bool binary(Json::binary_t&) { return false; }  // not in JSON
  bool start_object(size_t) { return enter(Json::object()); }
  bool start_array(size_t) { return enter(Json::array()); }
  bool end_object() {
    open.pop_back();
    keys.pop_back();
    return true;
  }
  bool end_array() { return end_object(); }
  bool key(std::string& next) {
    check<DataError>(keys.back().insert(next).second, where, ": an object has the key ", in_quotes(next),
                     " twice; leave out one of them");
    open.back()->get_ref<Json::object_t&>().emplace_back(next, nullptr);
    return true;
  }
  bool parse_error(size_t, const std::string&, const auto& error) { throw error; }
};

}  // namespace

void check_json_memory(size_t bytes, const std::string& where) {
  constexpr size_t most = 32;  // times the text: each array in "[[[[" has an element of 16 bytes, and two blocks
  check<OutOfMemory>(bytes <= available_memory(Device::cpu) / most, where, ": out of memory: to parse JSON of ", bytes,
                     " bytes may take ", most, " times as much, and ", available_memory(Device::cpu),
                     " are available to this process");
}

Json parse_json(std::string_view text, const std::string& where) try {
  check_json_memory(text.size(), where);
  // Versions of the library have different words for it.
  check<DataError>(text.find_first_not_of(" \t\r\n") != std::string_view::npos, where, ": expected JSON, got nothing");
  check<DataError>(text.find('\0') == std::string_view::npos, where, ": expected JSON, got a NUL byte");
  Builder builder{where};
  Json::sax_parse(text, &builder);
  return std::move(builder.value);
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

bool is_utf8(const std::string& text) try { return !Json(text).dump().empty(); } catch (const Json::type_error&) {
  return false;
}

std::string printed(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void check_storable(const std::string& what, const std::string& text) {
  check<UsageError>(is_utf8(text), what, ": expected UTF-8, which JSON needs, got ", printed(text), "; rename it");
}

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

double number_or_nan(const Json& json) { return json.is_null() ? NAN : json.get<double>(); }

std::string as_utf8(const std::string& text) { return Json::parse(printed(text)); }

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
