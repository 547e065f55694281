#pragma once
// Random projections, each one chain of fused multiply-adds over d = 0 .. D-1 in float32, as on every device: the work
// is shared out by vectors and rows, never within a chain.
//
// A block of 8 warps takes 128 rows, a warp 16 of them, a lane vectors `lane` and `lane + 32`. (A thread a row would
// need 64 sums of its own, or to go through its row once for every few vectors.) D goes by 32 at a time, through shared
// memory: the vectors for the whole block, the rows of a warp for that warp. For four steps of its 32 chains a lane
// reads 4 pairs of vectors, which no other lane wants, and 16 times four elements of a row, which all lanes want and
// one reading gives them: 24 transactions of shared memory for 128 multiply-adds. A multiprocessor does four of these
// while it does one of those, so arithmetic bounds it, barely.
#include "cuda/common.cuh"

namespace cairn::gpu {

inline constexpr int projection_warps = 8, projected_a_warp = 16,
                     projected_a_block = projection_warps * projected_a_warp;

// product[i][l] = row i of this warp's 16 . vector lane + 32 l. Lane i < 16 knows where row i stands: at data + place,
// or nowhere (-1: zeros). Vector j < count is vectors[j * stride], ...; those behind are zeros.
template <class T, int per_lane>
__device__ void project(const T* data, int64_t place, int64_t D, const float* vectors, int64_t stride, int count,
                        float (&product)[projected_a_warp][per_lane]) {
  constexpr int chunk = 32;                            // of D
  __shared__ Pack<float, per_lane> vector[chunk][33];  // 33: writing a column meets all banks
  __shared__ Pack<float, 4> rows[projection_warps][projected_a_warp][chunk / 4];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  for (int i = 0; i < projected_a_warp; ++i)
    for (int l = 0; l < per_lane; ++l) product[i][l] = 0;

  for (int64_t start = 0; start < D; start += chunk) {
    // Beyond the last d and the last vector stand zeros: they add 0 to finished chains.
    for (int i = int(threadIdx.x); i < chunk * 32 * per_lane; i += 32 * projection_warps) {
      const int d = i % chunk, j = i / chunk;
      vector[d][j % 32].element[j / 32] = start + d < D && j < count ? vectors[j * stride + start + d] : 0.0f;
    }
    for (int i = 0; i < projected_a_warp; ++i) {
      const int64_t from = __shfl_sync(full_warp, place, i);
      const float value = from >= 0 && start + lane < D ? float(data[from + start + lane]) : 0.0f;
      rows[warp][i][lane / 4].element[lane % 4] = value;
    }
    __syncthreads();
#pragma unroll 2
    for (int d = 0; d < chunk; d += 4) {
      Pack<float, per_lane> p[4];
      for (int k = 0; k < 4; ++k) p[k] = vector[d + k][lane];
      for (int i = 0; i < projected_a_warp; ++i) {
        const Pack<float, 4> x = rows[warp][i][d / 4];
        for (int k = 0; k < 4; ++k)
          for (int l = 0; l < per_lane; ++l) product[i][l] = __fmaf_rn(x.element[k], p[k].element[l], product[i][l]);
      }
    }
    __syncthreads();  // both are loaded again
  }
}

}  // namespace cairn::gpu
