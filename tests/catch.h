#pragma once
// What all tests use: Catch2 3, and what Catch2 2 (Debian 12) has by other names.
#include <ostream>
#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text) { return Contains(text); }
}  // namespace Catch::Matchers
#endif

namespace cairn::test {

// With sanitizers tests take long, so some try fewer similar cases.
#if CAIRN_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace cairn::test

// Shapes in messages.
namespace cairn {
class Shape;
std::string to_string(const Shape& shape);
inline std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }
}  // namespace cairn
