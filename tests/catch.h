#pragma once
// Catch2 3 (Ubuntu 24.04) and Catch2 2 (Debian 12) by one name.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
namespace Catch::Matchers {
inline auto Contains(const std::string& text) { return ContainsSubstring(text); }
// A literal would otherwise be taken for an element of a range.
template <size_t N>
auto Contains(const char (&text)[N]) {
  return ContainsSubstring(text);
}
}  // namespace Catch::Matchers
#else
#include <catch2/catch.hpp>
#endif
