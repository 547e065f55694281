#pragma once
// JSON as it is meant to be: what other parsers let pass or guess at is an error that says where it is.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace cairn {

// The value that `text` is. `where` (a file's name) begins every message, which goes on with line and column. Errors
// (DataError): not JSON, not UTF-8, nothing or more than one value, a key twice in an object, nesting deeper than 64, a
// whole number beyond 64 bits, a number beyond double. It takes at most some 30 times the memory of the text.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& where);
// The same of a file. Errors (DataError) also as read_file.
nlohmann::ordered_json read_json(const std::filesystem::path& path);

// Text from outside for a message: in double quotes, printable ASCII alone, cut off where it is long. Quoted when it is
// written, so the text must be there until then.
struct Quoted {
  std::string_view text;
};
inline Quoted in_quotes(std::string_view text) { return {text}; }
void append(std::string& text, const Quoted& quoted);

}  // namespace cairn
