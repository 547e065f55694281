#include "nn/io/json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <forward_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "nn/io/file.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t deepest = 64;

// Reads the text for the parser and knows how far it has come, which the parser does not tell its consumer.
class Reader {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reader(const char* at, const char*& reached) : at_(at), reached_(&reached) {}
  reference operator*() const { return *at_; }
  Reader& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const Reader& other) const { return at_ == other.at_; }
  bool operator!=(const Reader& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// What the parser's message says was wrong, without the text it repeats.
std::string reason(std::string message) {
  if (const size_t begin = message.find("syntax error"); begin != std::string::npos) message.erase(0, begin);
  if (const size_t echo = message.find("; last read: '"); echo != std::string::npos) {
    const size_t expected = message.rfind("'; expected ");
    message.erase(echo, expected == std::string::npos ? std::string::npos : expected + 1 - echo);
  }
  if (message.size() > 200) message.resize(200);
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return message;
}

using Member = std::function<void(std::string&& name, Json&& value)>;

// Builds the value from what the parser finds, from the inside out. With `member` the value is an object, whose members
// go there.
class Builder {
 public:
  Builder(std::string_view text, const std::string& where, const Member* member = nullptr,
          size_t max_members = SIZE_MAX)
      : text_(text), where_(where), member_(member), max_members_(max_members), reached_(text.data()) {}

  Json parse() {
    const auto first = text_.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) fail(text_.size(), "expected JSON, got nothing");
    // The parser would take it for the end of the text.
    if (const auto nul = text_.find('\0'); nul != std::string_view::npos) fail(nul, "a NUL byte");
    const char* end = text_.data() + text_.size();
    Json::sax_parse(Reader(text_.data(), reached_), Reader(end, reached_), this);
    return std::move(result_);
  }

  // What the parser calls.
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
    Level& level = open_.back();
    // The set looks at the key in the text, or, where that is written in another way, at a copy.
    std::string_view kept = text_.substr(0, read() - 1);
    kept.remove_prefix(kept.size() - std::min(kept.size(), key.size()));
    if (kept != key) kept = level.escaped.emplace_front(key);
    if (!is_new(level, kept)) fail_here(concat("the key ", in_quotes(key), " a second time in the same object"));
    if (member_ && open_.size() == 1) {
      if (++members_ > max_members_) fail_here(concat("more than ", max_members_, " members"));
      values_ = 0;
    }
    level.key = std::move(key);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    const bool too_large = error.id == 406;
    fail(position == 0 ? 0 : position - 1, too_large ? "a number too large for a double" : reason(error.what()));
  }

 private:
  struct Level {
    Json value;  // an object or array
    std::string key;
    std::unordered_set<std::string_view> keys;  // of an object with many
    std::forward_list<std::string> escaped;
  };

  // Is it the first key of that name? While the members are few, they are looked through.
  bool is_new(Level& level, std::string_view key) const {
    constexpr size_t few = 16;
    const auto& members = level.value.get_ref<const Json::object_t&>();
    const bool passed_on = member_ && open_.size() == 1;
    if (!passed_on && members.size() < few)
      return std::none_of(members.begin(), members.end(), [=](const auto& member) { return member.first == key; });
    if (!passed_on && level.keys.empty())
      for (const auto& [name, value] : members) level.keys.insert(level.escaped.emplace_front(name));
    return level.keys.insert(key).second;
  }

  bool open(Json empty) {
    if (open_.size() == deepest) fail_here(concat("nested more than ", deepest, " deep"));
    if (member_ && open_.empty() && !empty.is_object()) fail_here("expected an object");
    open_.push_back({std::move(empty), {}, {}, {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (member_ && ++values_ > max_members_) fail_here(concat("more than ", max_members_, " values"));
    if (open_.empty())
      result_ = std::move(value);
    else if (member_ && open_.size() == 1)
      (*member_)(std::move(open_.back().key), std::move(value));
    else if (Level& level = open_.back(); level.value.is_array())
      append_to(level.value.get_ref<Json::array_t&>(), std::move(value));
    else  // not by operator[], which searches all keys
      append_to(level.value.get_ref<Json::object_t&>(), level.key, std::move(value));
    return true;
  }
  template <class Values, class... Value>
  static void append_to(Values& values, Value&&... value) {
    if (values.empty()) values.reserve(4);  // few have more
    values.emplace_back(std::forward<Value>(value)...);
  }

  size_t read() const { return size_t(reached_ - text_.data()); }
  [[noreturn]] void fail_here(const std::string& what) const { fail(read() == 0 ? 0 : read() - 1, what); }
  [[noreturn]] void fail(size_t offset, const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t newline = before.rfind('\n');
    const size_t column = newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
    throw DataError(concat(where_, ": line ", line, ", column ", column, ": ", what));
  }

  std::string_view text_;
  const std::string& where_;
  const Member* member_;
  size_t max_members_, members_ = 0, values_ = 0;  // values within the member so far
  const char* reached_;                            // behind the last byte that was read
  std::vector<Level> open_;
  Json result_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where) { return Builder(text, where).parse(); }

void parse_json_members(std::string_view text, const std::string& where, size_t max_members, const Member& member) {
  const Json value = Builder(text, where, &member, max_members).parse();
  check<DataError>(value.is_object(), where, ": expected an object, got ", value.type_name());
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void append(std::string& text, const Quoted& quoted) {
  constexpr size_t longest = 80;
  const std::string shown(quoted.text.substr(0, longest));
  text += Json(shown).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (quoted.text.size() > longest) text += "...";
}

}  // namespace cairn
