#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cairn {

// Text as printf writes it, of any length. Always with the C locale's decimal point, because files are made of it.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

// A number for JSON, which has none for NaN and infinity: null.
nlohmann::ordered_json finite_or_null(double value);

}  // namespace cairn
