#include "core/error.h"

#include <charconv>

namespace cairn {

std::string digits_of(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::general, 6).ptr);
}

}  // namespace cairn
