#include "nn/io/json.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "core/error.h"
#include "nn/io/file.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// Builds the value from what nlohmann's parser finds. The library's own builder takes the last of equal keys, searches
// all keys for each, and has no limit on nesting.
class Builder {
 public:
  Builder(std::string_view text, const std::string& where) : text_(text), where_(where), stream_(std::string(text)) {}

  Json parse() {
    if (text_.find_first_not_of(" \t\r\n") == std::string_view::npos) fail(text_.size(), "expected JSON, got nothing");
    // The parser would take it for the end of the text.
    if (const size_t nul = text_.find('\0'); nul != std::string_view::npos) fail(nul, "a NUL byte");
    Json::sax_parse(stream_, this);
    return std::move(result_);
  }

  // What the parser calls. It goes on where the answer is true.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string& text) {
    // Not by the decimal point, which the parser makes the locale's.
    if (text.find_first_not_of("-0123456789") == std::string::npos) fail_here("a whole number beyond 64 bits");
    return add(value);
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& key) {
    Level& object = open_.back();
    if (!object.keys.insert(key).second)
      fail_here(concat("the key ", in_quotes(key), " a second time in the same object"));
    object.value->get_ref<Json::object_t&>().emplace_back(std::move(key), nullptr);  // operator[] searches all keys
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.find("syntax error"), reason.size()));
    reason = reason.substr(0, reason.find("; last read: '"));  // repeats the text
    fail(position == 0 ? 0 : position - 1, error.id == 406 ? "a number too large for a double" : std::string(reason));
  }

 private:
  struct Level {
    Json* value;  // an object or array
    std::set<std::string> keys{};
  };

  // Puts a value where it belongs: nothing within an open value moves, for only the innermost one grows.
  Json& put(Json value) {
    if (open_.empty()) return result_ = std::move(value);
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    return parent.get_ref<Json::object_t&>().back().second = std::move(value);
  }
  bool add(Json value) {
    put(std::move(value));
    return true;
  }
  bool open(Json empty) {
    constexpr size_t deepest = 64;
    if (open_.size() == deepest) fail_here(concat("nested more than ", deepest, " deep"));
    open_.push_back({&put(std::move(empty))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  [[noreturn]] void fail_here(const std::string& what) {
    fail(size_t(stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in)) - 1, what);
  }
  [[noreturn]] void fail(size_t offset, const std::string& what) const {
    const std::string_view before = text_.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    throw DataError(concat(where_, ": line ", line, ", column ", column, ": ", what));
  }

  std::string_view text_;
  const std::string& where_;
  std::istringstream stream_;  // tells how far the parser has come, which the parser does not
  std::vector<Level> open_;
  Json result_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where) { return Builder(text, where).parse(); }

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void append(std::string& text, const Quoted& quoted) {
  constexpr size_t longest = 80;
  const std::string shown(quoted.text.substr(0, longest));
  text += Json(shown).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (quoted.text.size() > longest) text += "...";
}

}  // namespace cairn
