#include "cuda/source_line.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/kernels/group.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/cuda/launch_kernels.h"

using namespace cairn;
using namespace cairn::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

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

TEST_CASE("threads may launch one kernel with different sizes of shared memory", "[gpu]") {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (const size_t n : {12500, 15000, 13000, 14000})  // each needs more than 48 KB
    threads.emplace_back([&right, n] {
      OnDevice<float> from(std::vector<float>(n, 5)), to(n);
      reverse_through_shared(from.data(), to.data(), int(n), n * sizeof(float));
      right += to.values() == std::vector<float>(n, 5);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
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

TEST_CASE("more blocks than a grid has room for are an error, not fewer blocks", "[gpu]") {
  using Blocks = std::array<unsigned, 3>;
  CHECK(blocks_of(0, 0, 0) == Blocks{0, 0, 0});
  CHECK(blocks_of(2147483647, 65535, 65535) == Blocks{2147483647, 65535, 65535});
  CHECK_THROWS_AS(blocks_of(int64_t{1} << 31), DeviceError);
  CHECK_THROWS_WITH(blocks_of((int64_t{1} << 32) + 1),
                    StartsWith("a launch needs 4294967297 blocks in x, at most 2147483647, at launch_kernels.cu:"));
  CHECK_THROWS_WITH(blocks_of(1, 65536), ContainsSubstring("65536 blocks in y, at most 65535"));
  CHECK_THROWS_WITH(blocks_of(1, 1, 65536), ContainsSubstring("65536 blocks in z, at most 65535"));
  CHECK_THROWS_WITH(blocks_of(-1), ContainsSubstring("-1 blocks in x"));
  // Cut to 32 bits, 2^32 + 1 blocks would be one block.
  OnDevice<int32_t> labels(256);
  CHECK_THROWS_WITH(gpu::position_labels({}, {1, 1, (int64_t{1} << 40) + 1, 4}, nullptr, false, labels.data()),
                    ContainsSubstring("needs 4294967297 blocks"));
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
