#pragma once
// Helpers of the tests of the emulator. Kernels are in the test files, which g++ and clang compile.
#include "cuda/block_cluster.cuh"
#include "cuda/launch.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"

namespace cairn::test {

// Every block writes its number to each block of its block cluster. Then it adds up what it got, before or after it has
// waited for the others.
template <int blocks>
__global__ void add_up_block_cluster(bool waits_first, int* sums) {
  int* const numbers = gpu::dynamic_shared<int>();  // [blocks]
  gpu::block_cluster_barrier<blocks>();             // all blocks have begun
  if (threadIdx.x < blocks) gpu::in_block<blocks>(int(threadIdx.x), numbers)[blockIdx.x % blocks] = int(blockIdx.x);
  if (waits_first) gpu::block_cluster_barrier<blocks>();
  int sum = 0;
  for (int block = 0; block < blocks; ++block) sum += numbers[block];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (!waits_first) gpu::block_cluster_barrier<blocks>();
}
// A thread of block 1 writes number n of block 0.
inline __global__ void write_another_block(int n) {
  if (threadIdx.x == 5 && blockIdx.x == 1) gpu::in_block<2>(0, gpu::dynamic_shared<int>())[n] = 1;
  gpu::block_cluster_barrier<2>();
}

// Calls check(block of the sum, the sum) for each sum of 3 block clusters of 4 blocks of 48 threads.
template <class F>
void each_sum_of_block_cluster(bool waits_first, F check) {
  OnDevice<int> sums(12 * 48);
  gpu::launch(add_up_block_cluster<4>, {.grid = 12, .block = 48, .shared = 16, .block_cluster = 4}, waits_first,
              sums.data());
  const auto values = sums.values();
  for (size_t i = 0; i < values.size(); ++i) check(int(i / 48), values[i]);
}

// Launches a correct kernel, which must work whatever has happened before.
inline __global__ void exchange(int* out) {
  __shared__ int kept[64];
  kept[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, kept[63 - threadIdx.x], 1);
}
inline void check_usable() {
  OnDevice<int> out(64);
  gpu::launch(exchange, {1, 64}, out.data());
  const auto values = out.values();
  for (int i = 0; i < 64; ++i) CHECK(values[size_t(i)] == 63 - (i ^ 1));
}

// The message of a launch that fails, "" if it succeeds. After it the emulator must still work.
template <class... Parameters, class... Args>
std::string message_of(void (*kernel)(Parameters...), const gpu::Launch& shape, Args... args) {
  std::string message;
  try {
    gpu::launch(kernel, shape, args...);
  } catch (const host_cuda::KernelError& error) {
    message = error.what();
  }
  check_usable();
  return message;
}

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

}  // namespace cairn::test
