#pragma once
// What the tests of the emulator share. Their kernels stand in the tests themselves: g++ and clang compile them.
#include "cuda/launch.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"

namespace cairn::test {

#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR >= 3
using Catch::Matchers::ContainsSubstring;
#else
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif

}  // namespace cairn::test
