// Launches, and reductions of a block.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/kernels/clusters.h"
#include "cuda/common.cuh"
#include "tests/catch.h"
#include "tests/cuda/device.h"

namespace cairn::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using gpu::launch;

__global__ void reverse(const float* from, float* to, int n) {
  float* const all = gpu::dynamic_shared<float>();
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) all[i] = from[i];
  __syncthreads();
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) to[i] = all[n - 1 - i];
}
void reverse_through_shared(const float* from, float* to, int n, size_t bytes) {
  launch(reverse, {1, 64, bytes}, from, to, n);
}

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

__global__ void nothing() {}

TEST_CASE("a launch that CUDA refuses says so and the next one works", "[gpu]") {
  const auto launch_nothing = [] { launch(nothing, {0, 32}); };
  CHECK_THROWS_AS(launch_nothing(), DeviceError);
  // CUDA calls such a shape an invalid configuration, or (580.159) an invalid argument.
  CHECK_THROWS_WITH(launch_nothing(), ContainsSubstring("CUDA: invalid ") && ContainsSubstring("(cudaErrorInvalid") &&
                                          ContainsSubstring("launch.cu:"));
  CHECK_THROWS_WITH(launch(nothing, {1, 1025}), ContainsSubstring("CUDA: invalid "));
  OnDevice<float> buffer(4);
  CHECK_THROWS_WITH(reverse_through_shared(buffer.data(), buffer.data(), 1, 1 << 20),
                    ContainsSubstring("1048576 bytes of shared memory, at most 101376, at launch.cu:"));
  reverse_through_shared(buffer.data(), buffer.data(), 4, 64);
  gpu::synchronize({});
}

TEST_CASE("more blocks than a grid has room for are an error and not fewer blocks", "[gpu]") {
  using gpu::Grid;
  const Grid none(0, 0, 0), largest(2147483647, 65535, 65535);
  CHECK((none.x == 0 && none.y == 0 && none.z == 0));
  CHECK((largest.x == 2147483647 && largest.y == 65535 && largest.z == 65535));
  CHECK_THROWS_AS(Grid(int64_t{1} << 31), DeviceError);
  CHECK_THROWS_WITH(Grid((int64_t{1} << 32) + 1),
                    StartsWith("a launch needs 4294967297 blocks in x, at most 2147483647, at launch.cu:"));
  CHECK_THROWS_WITH(Grid(1, 65536), ContainsSubstring("65536 blocks in y, at most 65535"));
  CHECK_THROWS_WITH(Grid(1, 1, 65536), ContainsSubstring("65536 blocks in z, at most 65535"));
  CHECK_THROWS_WITH(Grid(-1), ContainsSubstring("-1 blocks in x"));
  // Cut to 32 bits, 2^32 + 1 blocks would be one block.
  OnDevice<int32_t> labels(256);
  CHECK_THROWS_WITH(gpu::position_labels({}, {1, 1, (int64_t{1} << 40) + 1, 4}, nullptr, false, labels.data()),
                    ContainsSubstring("needs 4294967297 blocks"));
}

__global__ void reduce(int* sums, float* maxima) {
  const int me = int(threadIdx.x);
  sums[me] = gpu::block_reduce(me, 0, gpu::Sum{});
  maxima[me] = gpu::block_reduce(float(me), -INFINITY, gpu::Max{});
}

TEST_CASE("a block's reduction reaches every thread", "[gpu]") {
  in_every_order([] {
    for (const int threads : {32, 64, 96, 1024}) {
      OnDevice<int> sums{size_t(threads)};
      OnDevice<float> maxima{size_t(threads)};
      launch(reduce, {1, unsigned(threads)}, sums.data(), maxima.data());
      CHECK(sums.values() == std::vector<int>(size_t(threads), threads * (threads - 1) / 2));
      CHECK(maxima.values() == std::vector<float>(size_t(threads), float(threads - 1)));
    }
  });
}

}  // namespace
}  // namespace cairn::test
