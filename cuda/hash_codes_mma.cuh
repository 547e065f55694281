#pragma once
// Hash codes on tensor cores, with the bits of make_codes (cuda/hash_codes.cu).
//
// The product s of a query and a plane on tensor cores is near to make_codes' chain of fused multiply-adds. Where s is
// farther from the threshold than it can be from the chain, it decides the bit. Otherwise the query is in doubt, and
// its warp computes all its chains. Of random queries, 2 in 100 are in doubt.
//
// In bfloat16 a query is exact, and a plane is p_0 + p_1 + r, with p_0 and p_1 in bfloat16: s = q . p_0 + q . p_1. In
// float32 both have two parts in TF32, and the products of these without q_1 . p_1 are added (cuda/mma_tiles.cuh).
//
// Bound: |s - chain| <= bound |q| |p|, with the lengths of q and p. It is the sum of, in units of 2^-24 |q| |p|:
//                                bfloat16   float32
//   what the parts leave out     128        12        |r_d| <= 2^-17 |p_d|; in TF32 three terms of 2^-22
//   the chain                    D          D         D roundings
//   sums on tensor cores         2.75 D     5.25 D    2 D / 8 sums of 8 products and the sum so far, or 3 D / 4 sums of
//                                                     4 and the sum so far; each addend may lose 1 unit, and the sum 2
// GPUs of compute capability 8 add so, and newer ones lose less. (Models with the bits of these GPUs: Khattak and
// Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004.) CodeShape::bound is larger by a quarter or
// more. If q or the longest plane is so short or long that numbers may underflow or overflow, or has a NaN, the query
// is in doubt.
//
// Launch. A block of 128 threads prepares the planes and goes through tiles of queries; a warp has 32 queries of each,
// or 16 in float32. Traffic: e D + 8 bytes a query, the floor, and the planes for each block.
#include <cmath>

#include "core/kernels/hash_codes.h"
#include "cuda/mma_tiles.cuh"

namespace cairn::gpu {

template <class T, int columns>
struct CodeShape {
  static constexpr int planes = 64, strips = sizeof(T) == 2 ? 2 : 1;  // strips of 16 queries, of a warp
  static constexpr int own_warp = 16 * strips, own = own_warp * mma_warps;
  static constexpr int bytes = columns * (own * int(sizeof(T)) + planes * (sizeof(T) == 2 ? 8 : 4)) + planes * 4;
  static constexpr float bound = (sizeof(T) == 2 ? 128 + 6 * columns : 16 + 9 * columns) * 0x1p-24f;
};

// factor times the length of a row of a tile. Infinity if the length is below 2^-40 or above 2^40, or a NaN.
template <class T, int columns>
__device__ float bounded_length(float factor, const MmaTile<T, columns>& x, int row) {
  float square = 0;
#pragma unroll
  for (int c = 0; c < MmaTile<T, columns>::chunks; ++c)
    for (const T element : pack<MmaTile<T, columns>::in_chunk>(x.chunk(row, c), 0).element)
      square = fmaf(float(element), float(element), square);
  return square > 0x1p-80f && square < 0x1p80f ? factor * sqrtf(square) : INFINITY;
}

// The code of a query from the chains. A warp computes it.
template <class T, int columns>
__device__ uint64_t exact_code(const MmaTile<T, columns>& own, int row, const MmaTile<float, columns>& planes,
                               const float* thresholds) {
  constexpr int in_chunk = MmaTile<T, columns>::in_chunk;
  const int lane = mma_lane();
  float product[2] = {};
#pragma unroll 2
  for (int d = 0; d < columns; d += 4) {
    const Pack<T, 4> x = pack<4>(own.chunk(row, d / in_chunk), d % in_chunk / 4);
    for (int l = 0; l < 2; ++l) {
      const Pack<float, 4> p = pack<4>(planes.chunk(lane + 32 * l, d / 4), 0);
      for (int e = 0; e < 4; ++e) product[l] = __fmaf_rn(float(x.element[e]), p.element[e], product[l]);
    }
  }
  const unsigned low = __ballot_sync(full_warp, product[0] > thresholds[lane]);
  return uint64_t(__ballot_sync(full_warp, product[1] > thresholds[lane + 32])) << 32 | low;
}

template <class T, int columns>
__global__ void __launch_bounds__(mma_threads, columns <= 64 ? 3 : 2)
    make_codes_mma(HashSize size, HeadView<const T> q, const float* planes, uint64_t* codes) {
  wait_for_earlier_launches();
  using Shape = CodeShape<T, columns>;
  constexpr bool two_parts = sizeof(T) == 2;
  const MmaTile<T, columns> own{dynamic_shared<T>()};
  const MmaTile<float, columns> exact{reinterpret_cast<float*>(own.row(Shape::own).data)};
  float* const thresholds = exact.row(Shape::planes).data;
  const MmaTile<bfloat16, columns> high{reinterpret_cast<bfloat16*>(thresholds + Shape::planes)};
  const MmaTile<bfloat16, columns> low = high.row(Shape::planes);
  const int D = int(size.D), g = mma_g(), t = mma_t(), warp_row = int(threadIdx.x / 32) * Shape::own_warp;

  // The planes, two elements at a time. Those that do not exist are 0, and below their threshold.
  constexpr int pairs = columns / 2;
  const int d = int(threadIdx.x) % pairs * 2;
  for (int j = int(threadIdx.x) / pairs; j < Shape::planes; j += mma_threads / pairs) {
    Pack<float, 2> two{};
    for (int e = 0; e < 2; ++e)
      if (j < size.bits && d + e < D) two.element[e] = planes[j * (D + 1) + d + e];
    pack<2>(exact.chunk(j, d / 4), d % 4 / 2) = two;
    if constexpr (two_parts) {
      const uint32_t word = pack_bfloat16(two.element[0], two.element[1]);
      reinterpret_cast<uint32_t*>(high.chunk(j, d / 8))[d % 8 / 2] = word;
      reinterpret_cast<uint32_t*>(low.chunk(j, d / 8))[d % 8 / 2] = pack_bfloat16(
          two.element[0] - __uint_as_float(word << 16), two.element[1] - __uint_as_float(word & 0xffff0000u));
    }
  }
  const int plane = int(threadIdx.x);
  if (plane < Shape::planes) thresholds[plane] = plane < size.bits ? planes[plane * (D + 1) + D] : INFINITY;
  __syncthreads();
  const float length = plane < size.bits ? bounded_length(1, exact, plane) : 0.0f;
  const float bound = Shape::bound * block_reduce(length, 0.0f, Max{});  // of the longest plane
  Pack<float, 2> threshold[Shape::planes / 8];                           // of this lane's planes
#pragma unroll
  for (int n = 0; n < Shape::planes / 8; ++n) threshold[n] = pack<2>(thresholds, 4 * n + t);

  const auto N = unsigned(size.N), tiles = unsigned(ceil_div(N, Shape::own)), H = unsigned(size.H);
  for (unsigned task = blockIdx.x; task < unsigned(size.B) * H * tiles; task += gridDim.x) {
    const unsigned batch_head = task / tiles, first = task % tiles * Shape::own;
    const int rows = int(N - first);
    own.template copy<Shape::own>(q.at(batch_head / H, first, batch_head % H), q.row_stride, rows, D);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    const float margin_of_lane = bounded_length(bound, own, warp_row + mma_lane() % Shape::own_warp);
    float s[Shape::strips][Shape::planes / 8][4];
    if constexpr (two_parts) {
      mma_row_products(own.row(warp_row), high, s);
      mma_row_products<true>(own.row(warp_row), low, s);
    } else {
      mma_row_products(own.row(warp_row), exact, s);
    }

    uint64_t* const to = codes + int64_t(batch_head) * N + first + warp_row;
    unsigned in_doubt = 0;  // bit 4 g + 2 i + half: query 16 i + 8 half + g of the warp
#pragma unroll
    for (int i = 0; i < Shape::strips; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * i + 8 * half + g;
        const float margin = __shfl_sync(full_warp, margin_of_lane, row);
        uint32_t words[2] = {};
        bool doubt = false;
#pragma unroll
        for (int n = Shape::planes / 8 - 1; n >= 0; --n) {
          words[n / 4] <<= 6;  // plane 8 n + 2 t + e is bit 8 n + e; the last shift adds 2 t
#pragma unroll
          for (int e = 1; e >= 0; --e) {
            const float below = threshold[n].element[e] - s[i][n][2 * half + e];
            words[n / 4] = words[n / 4] << 1 | __float_as_uint(below) >> 31;
            doubt |= !(fabsf(below) > margin);  // also for a NaN
          }
        }
        uint64_t code = (uint64_t(words[1]) << 32 | words[0]) << 2 * t;
        code |= __shfl_xor_sync(full_warp, code, 1);
        code |= __shfl_xor_sync(full_warp, code, 2);
        doubt = doubt && warp_row + row < rows;
        const unsigned lanes = __ballot_sync(full_warp, doubt), quads = (lanes | lanes >> 1 | lanes >> 2 | lanes >> 3);
        in_doubt |= (quads & 0x11111111u) << (2 * i + half);
        if (t == 0 && !(quads >> 4 * g & 1) && warp_row + row < rows) to[row] = code;
      }
#pragma unroll 1
    for (; in_doubt != 0; in_doubt &= in_doubt - 1) {
      const int bit = __popc((in_doubt & (0u - in_doubt)) - 1), row = bit / 2 % 2 * 16 + bit % 2 * 8 + bit / 4;
      const uint64_t code = exact_code(own, warp_row + row, exact, thresholds);
      if (mma_lane() == 0) to[row] = code;
    }
    __syncthreads();  // before the tile is copied again
  }
}

// Whether tensor cores can take these queries.
template <class T>
bool codes_suit_mma(HashSize size, HeadView<const T> q) {
  return fit_tiles<T>(size.D) && size.B * size.H * size.N < (int64_t{1} << 31) && holds_packs<16 / sizeof(T)>(q) &&
         has_mma();
}

template <class T>
void hash_codes_mma(Stream stream, HashSize size, HeadView<const T> q, const float* planes, uint64_t* codes) {
  with_mma_columns(size.D, [&]<int columns> {
    using Shape = CodeShape<T, columns>;
    const int64_t tiles = size.B * size.H * ceil_div(size.N, Shape::own);
    const int64_t rounds = ceil_div(tiles, 3 * multiprocessors());  // of three blocks a multiprocessor, or fewer
    launch<make_codes_mma<T, columns>, Shape::bytes>(overlapped({ceil_div(tiles, rounds), mma_threads, 0, stream}),
                                                     size, q, planes, codes);
  });
}

}  // namespace cairn::gpu
