// Locality-sensitive hashing by the signs of random projections (Charikar 2002; the paper's section 3.2.2, step 1):
//
//   bit j of a code = q . p_j > t_j
//
// The product is one chain of fused multiply-adds over d = 0 .. D-1 in float32, on every device, so the codes are the
// CPU's. A NaN gives 0 bits.
//
// Shapes. q [B, N, H, D] with any strides but of the last axis, float32 or bfloat16; planes [bits, D + 1], thresholds
// last; codes [B, H, N].
//
// Launch.
//   make_codes  a block takes 128 queries, a warp 16 of them, a lane planes `lane` and `lane + 32` (projections.cuh).
//               Two votes of the warp make the code of a query.
// Traffic: e D + 8 bytes a query, e bytes an element, the floor, and the planes once for each block, from the L2 cache.
// Cost: 64 D multiply-adds a query, 32 D up to 32 bits. Lanes beyond the last plane compute in vain.
#include "core/kernels/hash_codes.h"

#include <cmath>

#include "cuda/projections.cuh"

namespace cairn::gpu {
namespace {

// `planes_a_lane`: 1 for up to 32 bits, or 2.
template <class T, int planes_a_lane>
__global__ void __launch_bounds__(32 * projection_warps, 2)
    make_codes(HashSize size, HeadView<const T> q, const float* planes, uint64_t* codes) {
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int64_t D = size.D, rows = size.B * size.H * size.N;
  const int64_t first = int64_t(blockIdx.x) * projected_a_block + warp * projected_a_warp;

  int64_t place = -1;
  if (const int64_t row = first + lane; lane < projected_a_warp && row < rows) {
    const int64_t batch_head = row / size.N;
    place = q.at(batch_head / size.H, row % size.N, batch_head % size.H) - q.data;
  }
  float product[projected_a_warp][planes_a_lane];
  project(q.data, place, D, planes, D + 1, size.bits, product);

  uint64_t code = 0;  // of query `lane`
  for (int l = 0; l < planes_a_lane; ++l) {
    const int j = lane + 32 * l;
    const float threshold = j < size.bits ? planes[j * (D + 1) + D] : INFINITY;
    for (int i = 0; i < projected_a_warp; ++i) {
      const uint64_t votes = __ballot_sync(full_warp, product[i][l] > threshold);
      if (lane == i) code |= votes << (32 * l);
    }
  }
  if (place >= 0) codes[first + lane] = code;
}

}  // namespace

template <class T>
void hash_codes(Stream stream, HashSize size, HeadView<const T> q, const float* planes, uint64_t* codes) {
  const int64_t rows = size.B * size.H * size.N;
  if (rows == 0) return;
  launch(size.bits <= 32 ? make_codes<T, 1> : make_codes<T, 2>,
         {ceil_div(rows, projected_a_block), 32 * projection_warps, 0, stream}, size, q, planes, codes);
}

CAIRN_GPU_TYPES(hash_codes)

}  // namespace cairn::gpu
