#include "apps/common/format.h"

#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>

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

nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

double number_or_nan(const nlohmann::ordered_json& json) { return json.is_null() ? NAN : json.get<double>(); }

}  // namespace cairn
