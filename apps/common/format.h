#pragma once
#include <string>
#include <vector>

namespace cairn {

// Text as printf writes it, of any length. Programs set no locale, so the decimal point is always a point.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

// A table as text, with columns of equal width, and an empty line below.
std::string table_text(const std::vector<std::string>& names, std::vector<std::vector<std::string>> rows);

}  // namespace cairn
