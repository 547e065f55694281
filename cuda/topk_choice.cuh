#pragma once
// A warp chooses the k largest of many numbers without sorting them: it finds the k-th largest by bisection. Each step
// counts the numbers that reach the middle of the remaining range.
#include <cstdint>

#include "cuda/common.cuh"

namespace cairn::gpu {

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
  uint32_t low = 0xffffffffu, high = 0;
#pragma unroll 4
  for (int i = lane; i < n; i += 32) low = min(low, value(i)), high = max(high, value(i));
  low = warp_min(low), high = warp_max(high);
  while (low < high) {
    const uint32_t middle = high - (high - low) / 2;
    int reach = 0;
#pragma unroll 4
    for (int i = lane; i < n; i += 32) reach += value(i) >= middle;
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
