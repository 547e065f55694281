#pragma once
// Random projections. Each is one chain of fused multiply-adds over d = 0 .. D-1 in float32, as on every device:
// threads share vectors and rows, never a chain.
//
// A block of 8 warps takes 128 rows, a warp 16 of them, a lane vectors `lane` and `lane + 32`. (With a thread for each
// row, a thread would need 64 sums, or read its row once for every few vectors.) Vectors and rows go through shared
// memory 32 columns at a time: vectors for the whole block, rows for their warp. For four steps of its 32 chains a lane
// reads 4 pairs of elements of its vectors, and 16 times four elements of a row, which are the same for all lanes: 24
// transactions of shared memory for 128 multiply-adds. A multiprocessor computes four multiply-adds in the time of one
// transaction, so arithmetic is the bound, barely.
#include "cuda/common.cuh"

namespace cairn::gpu {

inline constexpr int projection_warps = 8, projected_a_warp = 16,
                     projected_a_block = projection_warps * projected_a_warp;

// product[i][l] = dot product of row i of this warp's 16 and vector lane + 32 l. Lane i < 16 passes the place of row i,
// which begins at data + place; -1: zeros. Vector j < count begins at vectors[j * stride]; further vectors are zeros.
template <class T, int per_lane>
__device__ void project(const T* data, int64_t place, int64_t D, const float* vectors, int64_t stride, int count,
                        float (&product)[projected_a_warp][per_lane]) {
  constexpr int chunk = 32;                            // columns
  __shared__ Pack<float, per_lane> vector[chunk][33];  // 33: a column is spread over all banks
  __shared__ Pack<float, 4> rows[projection_warps][projected_a_warp][chunk / 4];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  for (int i = 0; i < projected_a_warp; ++i)
    for (int l = 0; l < per_lane; ++l) product[i][l] = 0;

  for (int64_t start = 0; start < D; start += chunk) {
    // Beyond the last column and the last vector, zeros add 0 to finished chains.
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
    __syncthreads();  // before both are loaded again
  }
}

}  // namespace cairn::gpu
