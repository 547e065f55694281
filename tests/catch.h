#pragma once
// Catch2 3 (Ubuntu 24.04) and Catch2 2 (Debian 12) by one name.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
namespace Catch::Matchers {
inline auto Contains(const std::string& text) { return ContainsSubstring(text); }
}  // namespace Catch::Matchers
#else
#include <catch2/catch.hpp>
#endif
