#pragma once
// What the tests of the emulator share. Their kernels stand in the tests themselves: g++ and clang compile them.
#include "cuda/launch.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"

namespace cairn::test {

// Every thread writes a number; the last block to arrive adds all of them up. `fences` make it see them.
inline __global__ void add_up_in_last_block(bool fences, int* numbers, unsigned* arrived, int* sum) {
  numbers[blockIdx.x * blockDim.x + threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    if (fences) __threadfence();
    last = atomicAdd(arrived, 1u) + 1 == gridDim.x;
    if (fences) __threadfence();
  }
  if (!__syncthreads_or(last) || threadIdx.x != 0) return;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) *sum += numbers[i];
}

using Catch::Matchers::ContainsSubstring;

}  // namespace cairn::test
