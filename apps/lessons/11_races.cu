// Lesson 11: five kernels. `lesson start 11` breaks them, and each needs one to three lines. The page is
// apps/lessons/11_races.md.
#include <numeric>
#include <vector>

#include "apps/lessons/puzzle.h"

namespace cairn::lessons {
namespace {

// 1. Neighbors: y[t] = x[t - 1] + x[t] in a block, and y[0] = x[0]. The threads share their numbers in `tile`.
__global__ void neighbors(Meter<const float> x, Meter<float> y) {
  const Meter<float> tile = watch_shared(dynamic_shared<float>(), blockDim.x, "tile");
  const int t = int(threadIdx.x);
  // [lesson 11: tile[t] = x[t];
  tile[t] = x[t];
  __syncthreads();
  // lesson 11]
  y[t] = t > 0 ? tile[t - 1] + tile[t] : float(tile[t]);
}

// 2. Sum: y[t] = x[0] + ... + x[63], in every thread. In each round, half of the threads adds the sums of the other
// half.
__global__ void sum(Meter<const float> x, Meter<float> y) {
  const Meter<float> sums = watch_shared(dynamic_shared<float>(), blockDim.x, "sums");
  const int t = int(threadIdx.x);
  sums[t] = x[t];
  for (int half = int(blockDim.x / 2); half > 0; half /= 2) {
    // [lesson 11: if (t < half) __syncthreads(), sums[t] += sums[t + half];
    __syncthreads();
    if (t < half) sums[t] += sums[t + half];
    // lesson 11]
  }
  __syncthreads();
  y[t] = sums[0];
}

// 3. Warp sums: y[t] = the sum of the 32 numbers of the warp.
__global__ void warp_sums(Meter<const float> x, Meter<float> y) {
  const Meter<float> sums = watch_shared(dynamic_shared<float>(), blockDim.x, "sums");
  const int t = int(threadIdx.x), lane = t % 32;
  sums[t] = x[t];
  for (int half = 16; half > 0; half /= 2) {
    // [lesson 11: if (lane < half) sums[t] += sums[t + half];
    __syncwarp();
    if (lane < half) sums[t] += sums[t + half];
    // lesson 11]
  }
  __syncwarp();
  y[t] = sums[t - lane];
}

// 4. Total: a block has one warp and adds 32 numbers. Its sum is for y[blockIdx.x], and the host adds the sums.
__global__ void total(Meter<const float> x, Meter<float> y) {
  const float of_warp = warp_reduce(float(x[blockIdx.x * 32 + threadIdx.x]), Sum{});  // no memory: no race
  // [lesson 11: if (threadIdx.x == 0) y[0] += of_warp;
  if (threadIdx.x == 0) y[blockIdx.x] = of_warp;
  // lesson 11]
}

// 5. Ring: y[i] = x[i - 1] + x[i] for n numbers in a ring: before x[0] comes x[n - 1].
__global__ void ring(unsigned n, Meter<const float> x, Meter<float> y) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  // [lesson 11: const unsigned before = (i - 1) % n;
  const unsigned before = (i + n - 1) % n;
  // lesson 11]
  y[i] = x[before] + x[i];
}

// ---- Nothing to do below.

void run() {
  const auto x = numbers(100);
  const auto sum_of = [&](size_t begin, size_t n) {
    return std::accumulate(x.begin() + ptrdiff_t(begin), x.begin() + ptrdiff_t(begin + n), 0.0f);
  };
  puzzle("neighbors", neighbors, {1, 64, 256}, x, 64, 0, [&](size_t i) { return i > 0 ? x[i - 1] + x[i] : x[i]; });
  puzzle("sum", sum, {1, 64, 256}, x, 64, 0, [&](size_t) { return sum_of(0, 64); });
  puzzle("warp sums", warp_sums, {1, 64, 256}, x, 64, 0, [&](size_t i) { return sum_of(i / 32 * 32, 32); });
  puzzle("total", total, {3, 32}, x, 3, 0, [&](size_t i) { return sum_of(32 * i, 32); });
  puzzle(
      "ring", ring, {4, 32}, x, 100, 0, [&](size_t i) { return x[(i + 99) % 100] + x[i]; }, 100u);
}

}  // namespace
}  // namespace cairn::lessons

int main() { return cairn::lessons::lesson(cairn::lessons::run); }
