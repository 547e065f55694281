// The nearest of C centroids to each of N codes of 64 bits, in four steps. Memory hardly matters, 12 bytes a code for C
// comparisons; instructions do. A comparison takes two XORs, two bit counts, their sum, and the choice of the least.
// One of the four schedulers of a multiprocessor is busy for 8 clocks with a warp's bit count and for 2 with any other
// of these: 16 clocks of bit counts are the ceiling, 8 comparisons a clock and multiprocessor, 1.8e12 a second on an
// H100. Whatever else fits into 16 clocks is free, if other warps can do it meanwhile. So these stairs are low, and the
// kernel of step 1 is not bad; to go past the ceiling is to count otherwise (tensor cores multiply bytes of +1 and -1).
// cuda/hamming_kmeans.cu is the library's.
#include "cuda/common.cuh"
#include "cuda/ladder/ladder.h"

namespace cairn::ladder {
namespace {

using namespace gpu;

constexpr int threads = 256, tile = 512;

// ---- 1. A thread takes a query and reads each centroid from global memory: all lanes want the same 8 bytes, and find
// them in the L1 cache, some 35 clocks away. Six integer instructions besides the bit counts, 12 clocks of the 16: with
// full multiprocessors, 16 warps a scheduler, three quarters of the ceiling should be reached.
__global__ void __launch_bounds__(threads)
    from_global(Assignment size, const uint64_t* codes, const uint64_t* centroids, int32_t* labels) {
  const int i = int(blockIdx.x) * threads + int(threadIdx.x);
  if (i >= size.N) return;
  const uint64_t code = codes[i];
  int minimum = 65, label = 0;
  for (int c = 0; c < size.C; ++c) {
    const int distance = __popcll(code ^ centroids[c]);
    if (distance < minimum) minimum = distance, label = c;
  }
  labels[i] = label;
}

// Calls f(c, centroid) for all centroids, a tile of them at a time in shared memory. By all threads of a block.
template <class F>
__device__ void each_centroid(int C, const uint64_t* centroids, F f) {
  __shared__ uint64_t some[tile];
  for (int first = 0; first < C; first += tile) {
    const int count = min(tile, C - first);
    __syncthreads();  // all have done with the last tile
    for (int c = int(threadIdx.x); c < count; c += threads) some[c] = centroids[first + c];
    __syncthreads();
    for (int c = 0; c < count; ++c) f(first + c, some[c]);
  }
}

// ---- 2. Centroids go through shared memory: a load takes two thirds of the clocks and looks up no tags, and there are
// no 64-bit addresses to work out. The same instructions else. Expected: 1.1 times.
__global__ void __launch_bounds__(threads)
    from_shared(Assignment size, const uint64_t* codes, const uint64_t* centroids, int32_t* labels) {
  const int i = int(blockIdx.x) * threads + int(threadIdx.x);
  const uint64_t code = i < size.N ? codes[i] : 0;
  int minimum = 65, label = 0;
  each_centroid(size.C, centroids, [&](int c, uint64_t centroid) {
    const int distance = __popcll(code ^ centroid);
    if (distance < minimum) minimum = distance, label = c;
  });
  if (i < size.N) labels[i] = label;
}

// (distance, cluster) in 7 and 25 bits: of two such numbers the smaller is the one to keep.
__device__ uint32_t packed(uint64_t code, uint64_t centroid, int c) {
  return (uint32_t(__popcll(code ^ centroid)) << 25) + uint32_t(c);
}
__device__ int32_t label_of(uint32_t best) { return int32_t(best & ((1u << 25) - 1)); }

// ---- 3. Distance and label in one number, whose minimum is one instruction in place of a comparison and two
// selections; putting them together takes one. Five integer instructions are left of six. Expected: 1.05 times.
__global__ void __launch_bounds__(threads)
    packed_compare(Assignment size, const uint64_t* codes, const uint64_t* centroids, int32_t* labels) {
  const int i = int(blockIdx.x) * threads + int(threadIdx.x);
  const uint64_t code = i < size.N ? codes[i] : 0;
  uint32_t best = ~0u;
  each_centroid(size.C, centroids, [&](int c, uint64_t centroid) { best = min(best, packed(code, centroid, c)); });
  if (i < size.N) labels[i] = label_of(best);
}

// ---- 4. Four queries a thread: a centroid is loaded and the loop advanced once for four comparisons, which do not
// wait for each other, so that fewer warps are enough to keep the bit counts going. Expected: 1.1 times, to the
// ceiling.
constexpr int queries = 4;
__global__ void __launch_bounds__(threads)
    four_queries(Assignment size, const uint64_t* codes, const uint64_t* centroids, int32_t* labels) {
  const int first = int(blockIdx.x) * threads * queries + int(threadIdx.x);
  uint64_t code[queries];
  uint32_t best[queries];
  for (int n = 0; n < queries; ++n) {
    code[n] = first + n * threads < size.N ? codes[first + n * threads] : 0;
    best[n] = ~0u;
  }
  each_centroid(size.C, centroids, [&](int c, uint64_t centroid) {
    for (int n = 0; n < queries; ++n) best[n] = min(best[n], packed(code[n], centroid, c));
  });
  for (int n = 0; n < queries; ++n)
    if (first + n * threads < size.N) labels[first + n * threads] = label_of(best[n]);
}

template <auto kernel, int queries_a_thread>
void run(Stream stream, Assignment size, const uint64_t* codes, const uint64_t* centroids, int32_t* labels) {
  launch(kernel, {ceil_div(size.N, threads * queries_a_thread), threads, 0, stream}, size, codes, centroids, labels);
}

}  // namespace

std::vector<Step<Hamming>> hamming_steps() {
  return {{"a thread a query", run<from_global, 1>},
          {"centroids in shared memory", run<from_shared, 1>},
          {"distance and label in one number", run<packed_compare, 1>},
          {"four queries a thread", run<four_queries, queries>}};
}

}  // namespace cairn::ladder
