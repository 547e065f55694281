#pragma once
// JSON, and text from outside in messages.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace cairn {

// The value that `text` is. `where` (a file's name) begins every message. Errors (DataError): not JSON (with line and
// column), not UTF-8, nothing or more than one value, a value within more than 64 others, a number beyond double. Of
// equal keys of an object the last one counts; a whole number beyond 64 bits becomes a double.
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
