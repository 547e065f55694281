// Locality-sensitive hashing of queries by random projections:
//
//   codes    bit j = q . p_j > t_j (Charikar 2002; the paper's section 3.2.2, step 1). A NaN gives 0.
//   buckets  for each of R rounds with its random rotation r, and c = half the number of buckets (Andoni et al. 2015;
//            Reformer, Kitaev et al. 2020, section 2): argmax of (y_0 .. y_{c-1}, -y_0 .. -y_{c-1}), y_j = q . r_j;
//            ties: the lowest; no query: -1. A NaN is never the largest. If all are NaN, the bucket is 0.
//
// A product is one chain of fused multiply-adds over d = 0 .. D-1 in float32, on every device, so codes and buckets are
// the CPU's.
//
// Shapes. q [B, N, H, D] with any strides but of the last axis, float32 or bfloat16; planes [bits, D + 1], thresholds
// last; codes [B, H, N]; rotations [R, columns, D]; buckets [B, H, R, N]. The number of buckets of a batch element
// depends on its length.
//
// On tensor cores (cuda/hash_codes_mma.cuh), codes are the same: for compute capability 8.0 or newer, and rows of whole
// 16-byte chunks with up to 128 elements. make_codes is the fallback.
//
// Launch. A block takes 128 queries, a warp 16 of them; make_rotations has a thread for each number.
//   make_codes    A lane takes planes `lane` and `lane + 32`. Two votes of the warp make the code of a query.
//   make_buckets  A block's queries are of one batch element, head and round. A lane takes two columns in each 64. The
//                 lanes find the largest product together; lane i keeps that of query i.
// Traffic, with e bytes an element:
//   make_codes    e D + 8 bytes a query, the floor, and the planes once for each block, from the L2 cache. Cost: 64 D
//                 multiply-adds a query, 32 D up to 32 bits. Lanes beyond the last plane compute in vain.
//   make_buckets  e D bytes a query for every 64 columns, mostly from the L2 cache, and 4 written; the rotation once
//                 for each block. Floor: e D + 4 R a query. Bound by arithmetic: R D c multiply-adds a query. c grows
//                 with N, so this is the part of lsh attention that is not linear in N.
#include "core/kernels/hash_codes.h"

#include <cmath>

#include "cuda/hash_codes_mma.cuh"

namespace cairn::gpu {
namespace {

// ---- projections

// Threads share vectors and rows, never a chain.
//
// A block of 8 warps takes 128 rows, a warp 16 of them, a lane vectors `lane` and `lane + 32`. (With a thread for each
// row, a thread would need 64 sums, or read its row once for every few vectors.) Vectors and rows go through shared
// memory 32 columns at a time: vectors for the whole block, rows for their warp. For four steps of its 32 chains a lane
// reads 4 pairs of elements of its vectors, and 16 times four elements of a row, which are the same for all lanes: 24
// transactions of shared memory for 128 multiply-adds. A multiprocessor computes four multiply-adds in the time of one
// transaction, so arithmetic is the bound, barely.
constexpr int projection_warps = 8, projected_a_warp = 16, projected_a_block = projection_warps * projected_a_warp;

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

// ---- codes

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

// ---- buckets

constexpr int rotation_threads = 128;

__global__ void __launch_bounds__(rotation_threads)
    make_rotations(int64_t n, int64_t columns, int64_t D, int64_t random, Draw draw, float* rotations) {
  wait_for_earlier_launches();
  const int64_t i = int64_t(blockIdx.x) * rotation_threads + threadIdx.x, column = i / D;
  if (i < n)
    rotations[i] = i % D < random
                       ? normal(draw.key(), uint32_t(column % columns), uint32_t(i % D), uint32_t(column / columns))
                       : 0.0f;
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
  const int64_t first = blockIdx.x % tasks * projected_a_block, i0 = first + warp * projected_a_warp;
  const bool mine = lane < projected_a_warp && i0 + lane < n;
  const int64_t place = mine ? q.at(b, i0 + lane, h) - q.data : -1, values_b = size.count.b(size.counted(b));

  int32_t bucket = 0;  // of query `lane`
  for (int hash = 0; hash < 2 && first < n; ++hash) {
    const int64_t values = hash == 0 ? values_b : size.count.a(size.counted(b));
    const int columns = int(min(values / 2, size.columns));  // none if one hash makes the buckets
    const float* const rotation = rotations + (row % size.rounds * 2 + hash) * size.columns * size.D;
    LargestProjection best;
    for (int c0 = 0; c0 < columns; c0 += width) {
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
    bucket += int32_t(hash == 0 ? 1 : values_b) * best.index;
  }
  if (lane < projected_a_warp && i0 + lane < size.N) buckets[row * size.N + i0 + lane] = mine ? bucket : -1;
}

}  // namespace

// ---- the host's part

template <class T>
void hash_codes(Stream stream, HashSize size, HeadView<const T> q, const float* planes, uint64_t* codes) {
  const int64_t rows = size.B * size.H * size.N;
  if (rows == 0) return;
  if (codes_suit_mma(size, q)) return hash_codes_mma(stream, size, q, planes, codes);
  launch(size.bits <= 32 ? make_codes<T, 1> : make_codes<T, 2>,
         {ceil_div(rows, projected_a_block), 32 * projection_warps, 0, stream}, size, q, planes, codes);
}

void random_rotations(Stream stream, int64_t rounds, int64_t columns, int64_t D, int64_t random, Draw draw,
                      float* rotations) {
  const int64_t n = rounds * columns * D;
  if (n > 0)
    launch(make_rotations, overlapped({ceil_div(n, rotation_threads), rotation_threads, 0, stream}), n, columns, D,
           random, draw, rotations);
}

template <class T>
void hash_buckets(Stream stream, BucketSize size, HeadView<const T> q, const int32_t* lengths, const float* rotations,
                  int32_t* buckets) {
  const int64_t blocks = size.B * size.H * size.rounds * ceil_div(size.N, projected_a_block);
  if (blocks == 0) return;
  launch(size.columns <= 32 ? make_buckets<T, 1> : make_buckets<T, 2>, {blocks, 32 * projection_warps, 0, stream}, size,
         q, lengths, rotations, buckets);
}

CAIRN_GPU_TYPES(hash_codes)
CAIRN_GPU_TYPES(hash_buckets)

}  // namespace cairn::gpu
