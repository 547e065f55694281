#include "core/error.h"

#include <charconv>

namespace cairn {
namespace detail {

// At most 24 characters each.
template <class... Format>
static void append_number(std::string& text, auto value, Format... format) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value, format...).ptr);
}
void append_integer(std::string& text, int64_t value) { append_number(text, value); }
void append_integer(std::string& text, uint64_t value) { append_number(text, value); }
void append_real(std::string& text, double value) { append_number(text, value, std::chars_format::general, 6); }

}  // namespace detail
}  // namespace cairn
