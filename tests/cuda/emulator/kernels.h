#pragma once
// What the tests of the emulator share. Their kernels stand in the tests themselves: g++ and clang compile them.
#include "cuda/launch.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"

namespace cairn::test {

using Catch::Matchers::ContainsSubstring;

}  // namespace cairn::test
