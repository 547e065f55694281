// Locality-sensitive hashing into buckets (Andoni et al. 2015; Reformer, Kitaev et al. 2020, section 2): for each of R
// rounds with its random rotation r, and c = half the number of buckets,
//
//   bucket of q = argmax of (y_0 .. y_{c-1}, -y_0 .. -y_{c-1}),  y_j = q . r_j;  ties: the lowest; no query: -1
//
// The product is one chain of fused multiply-adds over d = 0 .. D-1 in float32, on every device, so the buckets are the
// CPU's. A NaN is never the largest. If all are NaN, the bucket is 0.
//
// Shapes. q [B, N, H, D] with any strides but of the last axis, float32 or bfloat16; rotations [R, columns, D]; buckets
// [B, H, R, N]. The number of buckets of a batch element depends on its length.
//
// Launch.
//   make_rotations  a thread computes one number
//   make_buckets    a block takes 128 queries of a (batch element, head, round), a warp 16 of them, a lane two columns
//                   in each 64 (projections.cuh). The lanes find the largest product together; lane i keeps that of
//                   query i.
// Traffic: e D bytes a query for every 64 columns, mostly from the L2 cache, and 4 written; the rotation once for each
// block. Floor: e D + 4 R a query. Bound by arithmetic: R D c multiply-adds a query. c grows with N, so this is the
// part of lsh attention that is not linear in N.
#include "core/kernels/hash_codes.h"

#include "cuda/projections.cuh"

namespace cairn::gpu {
namespace {

constexpr int rotation_threads = 128;

__global__ void __launch_bounds__(rotation_threads)
    make_rotations(int64_t n, int64_t columns, int64_t D, Draw draw, float* rotations) {
  const int64_t i = int64_t(blockIdx.x) * rotation_threads + threadIdx.x, column = i / D;
  if (i < n) rotations[i] = normal(draw.key(), uint32_t(column % columns), uint32_t(i % D), uint32_t(column / columns));
}

// `columns_a_lane`: 1 for up to 32 columns, or 2.
template <class T, int columns_a_lane>
__global__ void __launch_bounds__(32 * projection_warps, 2)
    make_buckets(BucketSize size, HeadView<const T> q, const int32_t* lengths, const float* rotations,
                 int32_t* buckets) {
  constexpr int width = 32 * columns_a_lane;
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int64_t tasks = ceil_div(size.N, projected_a_block), row = blockIdx.x / tasks;
  const int64_t batch_head = row / size.rounds, b = batch_head / size.H, h = batch_head % size.H;
  const int64_t n = lengths ? min(max(int64_t(lengths[b]), int64_t{0}), size.N) : size.N;
  const int columns = int(min(size.count(n) / 2, size.columns));
  const float* const rotation = rotations + row % size.rounds * size.columns * size.D;
  const int64_t first = blockIdx.x % tasks * projected_a_block, i0 = first + warp * projected_a_warp;
  const bool mine = lane < projected_a_warp && i0 + lane < n;
  const int64_t place = mine ? q.at(b, i0 + lane, h) - q.data : -1;

  LargestProjection best;  // of query `lane`
  for (int c0 = 0; c0 < columns && first < n; c0 += width) {
    float product[projected_a_warp][columns_a_lane];
    project(q.data, place, size.D, rotation + c0 * size.D, size.D, columns - c0, product);
#pragma unroll
    for (int i = 0; i < projected_a_warp; ++i) {
      LargestProjection found;
      for (int l = 0; l < columns_a_lane; ++l) {
        const int column = c0 + lane + 32 * l;
        if (column >= columns) continue;
        found.see(product[i][l], column);
        found.see(-product[i][l], columns + column);
      }
      for (int distance = 16; distance > 0; distance /= 2) {
        const float value = __shfl_xor_sync(full_warp, found.value, distance);
        found.see(value, __shfl_xor_sync(full_warp, found.index, distance));
      }
      if (lane == i) best.see(found.value, found.index);
    }
  }
  if (lane < projected_a_warp && i0 + lane < size.N) buckets[row * size.N + i0 + lane] = mine ? best.index : -1;
}

}  // namespace

void random_rotations(Stream stream, int64_t rounds, int64_t columns, int64_t D, Draw draw, float* rotations) {
  const int64_t n = rounds * columns * D;
  if (n > 0)
    launch(make_rotations, {ceil_div(n, rotation_threads), rotation_threads, 0, stream}, n, columns, D, draw,
           rotations);
}

template <class T>
void hash_buckets(Stream stream, BucketSize size, HeadView<const T> q, const int32_t* lengths, const float* rotations,
                  int32_t* buckets) {
  const int64_t blocks = size.B * size.H * size.rounds * ceil_div(size.N, projected_a_block);
  if (blocks == 0) return;
  launch(size.columns <= 32 ? make_buckets<T, 1> : make_buckets<T, 2>, {blocks, 32 * projection_warps, 0, stream}, size,
         q, lengths, rotations, buckets);
}

CAIRN_GPU_TYPES(hash_buckets)

}  // namespace cairn::gpu
