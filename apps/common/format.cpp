#include "apps/common/format.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace cairn {

std::string formatted(const char* format, ...) {
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(size_t(std::vsnprintf(nullptr, 0, format, arguments)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string table_text(const std::vector<std::string>& names, std::vector<std::vector<std::string>> rows) {
  const auto width_of = [](const std::string& text) {  // of UTF-8
    return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  };
  rows.insert(rows.begin(), names);
  std::vector<size_t> widths(names.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) text += row[i] + std::string(widths[i] + 2 - width_of(row[i]), ' ');
    text += row.back() + "\n";
  }
  return text + "\n";
}

}  // namespace cairn
