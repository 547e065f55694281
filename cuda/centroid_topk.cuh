#pragma once
// What the kernels of cuda/centroid_topk.cu share: the centroid of a warp, the top keys as one bit for each key, and
// how a warp chooses the k largest of many numbers.
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {

// The centroid of a warp. Block 0 starts with tile `first_tile`; each tile has 64 slots in the workspace.
struct CentroidRow {
  int64_t slot, batch_head, row;
  int query;
  bool there;  // whether there is such a centroid

  __device__ CentroidRow(int64_t N, int64_t first_tile)
      : slot(int64_t(blockIdx.x) * rows_per_block + threadIdx.x / 32) {
    const auto tiles = uint32_t(ceil_div(N, tile)), number = uint32_t(first_tile + slot / tile);
    batch_head = number / tiles;
    query = int(number % tiles) * tile + int(slot % tile);
    there = query < int(N);
    row = batch_head * N + query;
  }
};

// The backward pass needs these of a centroid.
struct alignas(16) CentroidState {
  float lse2, delta, dmass, unused = 0;  // written, because 16 bytes are copied

  // [grad. 9] dA of a key; dm for a top key
  __device__ float weight_gradient(float g, bool in_top) const { return in_top ? dmass : g; }
};

// Words in a row of bits: two for each tile of keys.
CAIRN_HD inline int64_t words(int64_t S) { return 2 * ceil_div(S, tile); }

// The top keys, for the kernels of full attention.
struct TopKeys {
  using State = CentroidState;
  static constexpr bool some = true, add = true;  // add: to what dk and dv hold
  const uint32_t* bits;                           // [B, H, N, words]

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

// ---- The k largest of many numbers. A warp finds the k-th largest by bisection, without sorting them. Each step
// counts the numbers that reach the middle of the remaining range.

// Maps floats to integers in the same order. 0 is below all of them.
inline __device__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
inline __device__ float from_ordered(uint32_t x) { return __uint_as_float(x >> 31 ? x & 0x7fffffffu : ~x); }

// Returns a threshold that exactly k of the n numbers value(0), ..., value(n - 1) reach, k <= n. If several numbers
// equal the k-th largest, it may return that one, and more than k reach it. All lanes get the result.
template <class F>
__device__ uint32_t kth_largest(int n, int k, F value) {
  const int lane = int(threadIdx.x % 32);
  constexpr int kept = 2;  // values of a lane that stay in registers
  uint32_t low = 0xffffffffu, high = 0, first[kept] = {};
#pragma unroll
  for (int b = 0; b < kept; ++b)
    if (const int i = lane + 32 * b; i < n) first[b] = value(i), low = min(low, first[b]), high = max(high, first[b]);
#pragma unroll 4
  for (int i = lane + 32 * kept; i < n; i += 32) low = min(low, value(i)), high = max(high, value(i));
  low = warp_min(low), high = warp_max(high);
  while (low < high) {
    const uint32_t middle = high - (high - low) / 2;
    int reach = 0;
#pragma unroll
    for (int b = 0; b < kept; ++b) reach += first[b] >= middle;
#pragma unroll 4
    for (int i = lane + 32 * kept; i < n; i += 32) reach += value(i) >= middle;
    reach = warp_sum(reach);
    if (reach >= k)
      low = middle;
    else
      high = middle - 1;
    if (reach == k) break;
  }
  return low;
}

// Separates the k best elements from the others. A larger score is better; of equal scores, a lower place. Elements
// that are equal in both stay together, so has() may hold for more than k.
struct Cut {
  uint32_t score = 0;  // a value of ordered()
  int last = 0x7fffffff;

  __device__ bool has(uint32_t other, int place) const { return other > score || (other == score && place <= last); }
};
template <class Score, class Place>
__device__ Cut cut_after(int n, int k, Score score, Place place) {
  Cut cut{kth_largest(n, k, score)};
  int above = 0, equal = 0;
#pragma unroll 4
  for (int i = int(threadIdx.x % 32); i < n; i += 32) above += score(i) > cut.score, equal += score(i) == cut.score;
  above = warp_sum(above), equal = warp_sum(equal);
  if (above + equal > k)
    cut.last = int(~kth_largest(n, k - above, [&](int i) { return score(i) == cut.score ? ~uint32_t(place(i)) : 0; }));
  return cut;
}

// The warp appends one element for each lane that has one, in the order of lanes, to a list of `count` elements.
// Returns the place of this lane's element.
inline __device__ int place_in_list(bool has, int& count) {
  const unsigned all = __ballot_sync(full_warp, has);
  const int place = count + __popc(all & ((1u << threadIdx.x % 32) - 1));
  count += __popc(all);
  return place;
}

}  // namespace cairn::gpu
