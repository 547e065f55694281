#include "tests/cuda/launch_kernels.h"

#include <array>
#include <cmath>

#include "cuda/cluster.cuh"
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

__global__ void exchange(unsigned cluster, int* seen, int* sums) {
  int* const mine = gpu::dynamic_shared<int>();  // a number of each thread, and a sum
  const unsigned n = blockDim.x, me = blockIdx.x * n + threadIdx.x;
  const unsigned next = (gpu::cluster_rank() + 1) % cluster;
  mine[threadIdx.x] = int(me);
  if (threadIdx.x == 0) mine[n] = 0;
  gpu::cluster_sync();
  seen[me] = gpu::neighbor_shared(mine, next)[n - 1 - threadIdx.x];
  atomicAdd(gpu::neighbor_shared(mine + n, next), int(threadIdx.x) + int(gpu::cluster_rank()));
  gpu::cluster_sync();
  if (__syncthreads_count(1) == int(n) && threadIdx.x == 0) sums[blockIdx.x] = mine[n];
}

}  // namespace

bool device_has_clusters() { return gpu::has_clusters(); }
void exchange_in_clusters(int blocks, int threads, int cluster, int* seen, int* sums) {
  gpu::launch(exchange, {blocks, unsigned(threads), size_t(threads + 1) * sizeof(int), {}, unsigned(cluster)},
              unsigned(cluster), seen, sums);
}
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
