#pragma once
// What the kernels of centroid_topk are given, and the top keys in one bit a key.
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {

// Queries are centroids.
template <class T>
struct CentroidProblem : AttentionProblem<T> {
  int top = 0;  // top keys at most
  int splits = 1;

  CAIRN_HD int64_t centroids() const { return this->size.B * this->size.H * this->size.N; }
};

// What the gradient knows of a centroid.
struct alignas(16) CentroidState {
  float lse2, delta, dmass;
};

// Words of a row of bits: two for each tile of keys.
CAIRN_HD inline int64_t words(int64_t S) { return 2 * ceil_div(S, tile); }

// A warp writes the bits of the top keys; -1 is none.
inline __device__ void mark_keys(const int32_t* topk, int k, int64_t S, uint32_t* bits) {
  // Two words at a time.
#pragma unroll 4
  for (int64_t i = threadIdx.x % 32; i < words(S) / 2; i += 32) reinterpret_cast<uint64_t*>(bits)[i] = 0;
  __syncwarp();
#pragma unroll 1
  for (int l = int(threadIdx.x % 32); l < k; l += 32)
    if (topk[l] >= 0) atomicOr(&bits[topk[l] / 32], 1u << topk[l] % 32);
  __syncwarp();
}

}  // namespace cairn::gpu
