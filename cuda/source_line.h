#pragma once
// The file and line of a call, for messages. (clang 14 does not have std::source_location.)
#include <string>
#include <string_view>

namespace cairn {

struct SourceLine {
  const char* file = "";
  int line = 0;

  static constexpr SourceLine current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(const SourceLine& a, const SourceLine& b) {
    return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
  }
};

// "softmax.cu:88"
inline std::string to_string(SourceLine where) {
  const std::string_view path = where.file;
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(where.line);
}

}  // namespace cairn
