#include "tests/cuda/launch_kernels.h"

#include <array>
#include <cmath>

#include "cuda/common.cuh"

namespace cairn::test {
namespace {

__global__ void reverse(const float* from, float* to, int n) {
  float* const all = gpu::dynamic_shared<float>();
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) all[i] = from[i];
  __syncthreads();
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) to[i] = all[n - 1 - i];
}

__global__ void nothing() {}

__global__ void reduce(int* sums, float* maxima) {
  const int me = int(threadIdx.x);
  sums[me] = gpu::block_reduce(me, 0, gpu::Sum{});
  maxima[me] = gpu::block_reduce(float(me), -INFINITY, gpu::Max{});
}

}  // namespace

void reverse_through_shared(const float* from, float* to, int n, size_t bytes) {
  gpu::launch(reverse, {1, 64, bytes, {}}, from, to, n);
}
void launch_nothing() { gpu::launch(nothing, {0, 32}); }
void launch_too_many_threads() { gpu::launch(nothing, {1, 1025}); }
std::array<unsigned, 3> blocks_of(int64_t x, int64_t y, int64_t z) {
  const gpu::Grid grid(x, y, z);
  return {grid.x, grid.y, grid.z};
}
void reduce_block(int threads, int* sums, float* maxima) { gpu::launch(reduce, {1, unsigned(threads)}, sums, maxima); }

}  // namespace cairn::test
