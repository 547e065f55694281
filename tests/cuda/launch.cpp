#include "cuda/source_line.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/cuda/launch_kernels.h"

using namespace cairn;
using namespace cairn::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a launch may ask for more than 48 KB of shared memory", "[gpu]") {
  std::vector<float> numbers(15000);  // 60 KB, which every GPU since Turing has
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  for (const size_t n : {size_t{100}, numbers.size()}) {
    const std::vector<float> some(numbers.begin(), numbers.begin() + int(n));
    OnDevice<float> from(some), to(n);
    reverse_through_shared(from.data(), to.data(), int(n), n * sizeof(float));
    auto result = to.values();
    std::reverse(result.begin(), result.end());
    CHECK(result == some);
  }
}

TEST_CASE("a launch that CUDA refuses says so, and the next one works", "[gpu]") {
  CHECK_THROWS_AS(launch_nothing(), DeviceError);
  CHECK_THROWS_WITH(launch_nothing(), ContainsSubstring("invalid configuration argument") &&
                                          ContainsSubstring("cudaErrorInvalidConfiguration") &&
                                          ContainsSubstring("launch_kernels.cu:"));
  CHECK_THROWS_WITH(launch_too_many_threads(), ContainsSubstring("invalid configuration argument"));
  OnDevice<float> buffer(4);
  CHECK_THROWS_WITH(reverse_through_shared(buffer.data(), buffer.data(), 1, 1 << 20),
                    ContainsSubstring("invalid argument"));
  reverse_through_shared(buffer.data(), buffer.data(), 4, 64);
  gpu::synchronize({});
}

TEST_CASE("a block's reduction reaches every thread", "[gpu]") {
  in_every_order([] {
    for (const int threads : {32, 64, 96, 1024}) {
      OnDevice<int> sums{size_t(threads)};
      OnDevice<float> maxima{size_t(threads)};
      reduce_block(threads, sums.data(), maxima.data());
      CHECK(sums.values() == std::vector<int>(size_t(threads), threads * (threads - 1) / 2));
      CHECK(maxima.values() == std::vector<float>(size_t(threads), float(threads - 1)));
    }
  });
}
