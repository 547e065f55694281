#include "apps/common/format.h"

#include <locale.h>  // newlocale, uselocale
#include <clocale>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace cairn {

std::string formatted(const char* format, ...) {
  // Of this thread alone, and only meanwhile.
  static const locale_t classic = newlocale(LC_ALL_MASK, "C", nullptr);
  const locale_t before = uselocale(classic);
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  uselocale(before);
  std::string text(size_t(size), '\0');
  uselocale(classic);
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  uselocale(before);
  return text;
}

nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

}  // namespace cairn
