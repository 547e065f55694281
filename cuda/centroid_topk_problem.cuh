#pragma once
// The arguments of the kernels of centroid_topk, and the top keys as one bit for each key.
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {

// Queries are centroids.
template <class T>
struct CentroidProblem : AttentionProblem<T> {
  int top = 0;  // upper limit of the top keys
  int splits = 1;

  CAIRN_HD int64_t centroids() const { return this->size.B * this->size.H * this->size.N; }
};

// The centroid of a warp. Block 0 starts with tile `first_tile`; each tile has 64 slots in the workspace.
struct CentroidRow {
  int64_t slot, batch_head, row;
  int query;
  bool there;  // whether there is such a centroid

  template <class T>
  __device__ CentroidRow(const CentroidProblem<T>& p, int64_t first_tile)
      : slot(int64_t(blockIdx.x) * rows_per_block + threadIdx.x / 32) {
    const auto tiles = uint32_t(ceil_div(p.size.N, tile)), number = uint32_t(first_tile + slot / tile);
    batch_head = number / tiles;
    query = int(number % tiles) * tile + int(slot % tile);
    there = query < p.N();
    row = batch_head * p.size.N + query;
  }
};

// The backward pass needs these of a centroid.
struct alignas(16) CentroidState {
  float lse2, delta, dmass;

  // dA of a key; dm for a top key.
  __device__ float weight_gradient(float g, bool in_top) const { return in_top ? dmass : g; }
};

// Words in a row of bits: two for each tile of keys.
CAIRN_HD inline int64_t words(int64_t S) { return 2 * ceil_div(S, tile); }

// The top keys, for the kernels of full attention.
struct TopKeys {
  using State = CentroidState;
  static constexpr bool some = true;
  const uint32_t* bits;  // [B, H, N, words]
  bool add = false;      // whether dk and dv are added to the present contents

  __device__ const uint32_t* row(const AttentionSize& size, const BatchHead& batch_head, int query) const {
    return bits + (batch_head.index * size.N + query) * words(size.S);
  }
  // Bit l: key `first` + l is a top key of the query. Valid up to the next multiple of 64.
  __device__ uint64_t bits_from(const AttentionSize& size, const BatchHead& batch_head, int query, int first) const {
    if (first >= size.S) return 0;
    const uint32_t* const own = row(size, batch_head, min(query, int(size.N) - 1));
    return reinterpret_cast<const uint64_t*>(own)[first / 64] >> first % 64;
  }
};

// Writes the bits of the top keys. A warp calls it. Indices outside [0, S), such as -1, are ignored.
inline __device__ void mark_keys(const int32_t* topk, int k, int64_t S, uint32_t* bits) {
  // Two words at a time.
#pragma unroll 4
  for (int64_t i = threadIdx.x % 32; i < words(S) / 2; i += 32) reinterpret_cast<uint64_t*>(bits)[i] = 0;
  __syncwarp();
#pragma unroll 1
  for (int l = int(threadIdx.x % 32); l < k; l += 32)
    if (const int key = topk[l]; key >= 0 && key < S) atomicOr(&bits[key / 32], 1u << key % 32);
  __syncwarp();
}

}  // namespace cairn::gpu
