#pragma once
#include <string>

namespace cairn {

// Text as printf writes it, of any length. Always with the C locale's decimal point, because files are made of it.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

}  // namespace cairn
