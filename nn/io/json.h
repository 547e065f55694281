#pragma once
// JSON, and text from outside in messages.
#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace cairn {

using Json = nlohmann::ordered_json;  // objects keep their order

// Parses a JSON value. `where` (a file's name) begins every message. Errors (DataError): not JSON (with line and
// column), not UTF-8, no value or more than one, nested more than 64 deep, an object with a key twice, a number too
// large for a double. Error (OutOfMemory): as check_json_memory. A whole number beyond 64 bits becomes a double. Time
// grows with the text, also where an object has many keys; but at() looks through them all.
Json parse_json(std::string_view text, const std::string& where);
// The same for a file. Errors (DataError): also as read_file.
Json read_json(const std::filesystem::path& path);
// The same for a file with one object. Without such a file, an empty object. Error (DataError): also another value.
Json read_optional_object(const std::filesystem::path& path);
// Error (OutOfMemory): to parse a text of so many bytes might take more memory than there is.
void check_json_memory(size_t bytes, const std::string& where);
// Error (DataError): a key has a value that is neither null nor in the array `accepted`. `where` begins the message.
void expect_one_of(const Json& object, const std::string& where, const std::string& key, const Json& accepted);

// JSON is UTF-8, but names of files and texts in old data may have other bytes. What must be stored in JSON is refused
// before work begins, if it is not is_utf8(). What is only printed is printed(): bytes that are not UTF-8 become
// U+FFFD.
bool is_utf8(const std::string& text);
std::string printed(const Json& json);
// The text, in which bytes that are not UTF-8 are U+FFFD.
std::string as_utf8(const std::string& text);

// Error (UsageError): the text is not UTF-8, so JSON cannot store it. `what` begins the message.
void check_storable(const std::string& what, const std::string& text);

// A number for JSON, which has none for NaN and infinity: null.
Json finite_or_null(double value);
// The number; NaN for null.
double number_or_nan(const Json& json);

// Text from outside for a message: in double quotes, with only printable ASCII, cut off if long. It keeps a view, so
// the text must exist until the message is written.
struct Quoted {
  std::string_view text;
};
inline Quoted in_quotes(std::string_view text) { return {text}; }
void append(std::string& text, const Quoted& quoted);

}  // namespace cairn
