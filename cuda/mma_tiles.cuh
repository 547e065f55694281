#pragma once
// Products of tiles on tensor cores, by blocks of 128 threads. Each of the four warps multiplies warp tiles, 16 rows
// each, with rows that the whole block has loaded. bf16 is multiplied directly, float as the sum of two numbers in
// TF32.
#include "cuda/mma.cuh"

namespace cairn::gpu {

inline constexpr int mma_threads = 128, mma_warps = 4;

// Columns of A that one instruction takes: 32 bytes.
template <class T>
inline constexpr int mma_depth = 32 / int(sizeof(T));

// Whether tiles have room for rows of so many columns, and rows are whole chunks of 16 bytes.
template <class T>
bool fit_tiles(int64_t columns) {
  return columns > 0 && columns <= 128 && columns % (16 / sizeof(T)) == 0;
}
// Calls f<columns>() with the fewest columns of a tile that have room for so many.
template <class F>
void with_mma_columns(int64_t columns, F f) {
  if (columns <= 32)
    f.template operator()<32>();
  else if (columns <= 64)
    f.template operator()<64>();
  else
    f.template operator()<128>();
}

// A float as a sum of two numbers in TF32, with a relative error of 2^-22. Infinity becomes NaN. (A low part of 0 would
// not help: the other factor's low part is often 0, and infinity times 0 is NaN.)
struct TwoTf32 {
  uint32_t high, low;

  explicit __device__ TwoTf32(uint32_t word) {
    const float x = __uint_as_float(word);
    high = __float_as_uint(round_tf32(x)) & ~0x1fffu;
    low = __float_as_uint(round_tf32(x - __uint_as_float(high)));
  }
};

// c += A B. Floats take three products. The fourth, of both low parts, is as small as the error of TwoTf32.
template <class T>
__device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (sizeof(T) == 2) {
    mma_bf16(c, a, b0, b1);
  } else {
    const TwoTf32 a_0(a[0]), a_1(a[1]), a_2(a[2]), a_3(a[3]), b_0(b0), b_1(b1);
    mma_tf32<3>(c,
                {{a_0.low, a_1.low, a_2.low, a_3.low},
                 {a_0.high, a_1.high, a_2.high, a_3.high},
                 {a_0.high, a_1.high, a_2.high, a_3.high}},
                {{b_0.high, b_1.high}, {b_0.low, b_1.low}, {b_0.high, b_1.high}});
  }
}

// This thread's place in the fragments of sums: see cuda/mma.cuh.
inline __device__ int mma_lane() { return int(threadIdx.x % 32); }
inline __device__ int mma_g() { return mma_lane() / 4; }
inline __device__ int mma_t() { return mma_lane() % 4; }

// A tile in shared memory. A row has a power of two of bytes, at least 64, in chunks of 16 bytes. The chunks of a row
// are permuted (XOR swizzle), so that neighboring rows have the same chunk in different banks.
template <class T, int columns>
struct MmaTile {
  static constexpr int in_chunk = 16 / int(sizeof(T)), chunks = columns / in_chunk, steps = columns / mma_depth<T>;
  static_assert(chunks >= 4);
  T* data;

  __device__ T* chunk(int row, int c) const { return data + place(row, c) * in_chunk; }
  __device__ static int place(int row, int c) { return row * chunks + (c ^ (chunks >= 8 ? row % 8 : row / 2 % 4)); }
  // chunk(row + r, c + d), for r a multiple of 8 and d without a bit in common with c. If (row, c) depends on the lane,
  // and r and d are constants, it takes one instruction for each d and none for each r.
  __device__ const T* chunk_from(int row, int c, int r, int d) const {
    return data + (place(row, c) ^ d) * in_chunk + r * columns;
  }
  __device__ MmaTile row(int first) const { return {data + first * columns}; }  // `first` is a multiple of 8

  // Starts copying `height` rows from x, of which `rows` and `columns_there` columns exist; the others are 0.
  // A thread copies the same chunk of every step-th row, so that the addresses of a whole tile take few instructions.
  template <int height>
  __device__ void copy(const T* x, int64_t stride, int rows, int columns_there) const {
    constexpr int step = mma_threads / chunks;
    const int r0 = int(threadIdx.x) / chunks, c = int(threadIdx.x) % chunks;
    if (height % step == 0 && step % 8 == 0 && rows >= height && columns_there == columns) {
      const T* from = x + r0 * stride + c * in_chunk;
      T* const to = chunk(r0, c);
#pragma unroll
      for (int r = 0; r < height; r += step, from += step * stride) copy_async<16>(to + r * columns, from, true);
      return;
    }
#pragma unroll 1
    for (int r = r0; r < height; r += step) copy_chunk(r, c, x, stride, r < rows ? r : -1, columns_there);
  }
  // The same for rows index[r] of x; zeros where the index is negative.
  template <int height>
  __device__ void copy(const T* x, int64_t stride, const int32_t* index, int columns_there) const {
    constexpr int rounds = height * chunks / mma_threads, batch = rounds < 4 ? rounds : 4, step = mma_threads / chunks;
    static_assert(rounds * mma_threads == height * chunks && rounds % batch == 0);
    const int c = int(threadIdx.x) % chunks;
#pragma unroll 1
    for (int n = 0; n < rounds; n += batch) {
      const int r = int(threadIdx.x) / chunks + n * step;
      int from[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) from[i] = index[r + i * step];
#pragma unroll
      for (int i = 0; i < batch; ++i) copy_chunk(r + i * step, c, x, stride, from[i], columns_there);
    }
  }
  // Starts copying chunk c of row `from` of x to row r.
  __device__ void copy_chunk(int r, int c, const T* x, int64_t stride, int from, int columns_there) const {
    const bool there = from >= 0 && c * in_chunk < columns_there;
    copy_async<16>(chunk(r, c), there ? x + from * stride + c * in_chunk : x, there);
  }
  // The fragment of A: 16 rows from `row` on, and the columns of one step.
  __device__ void load_a(int row, int step, uint32_t (&a)[4]) const {
    // [lesson 14
    load_matrices<false>(a, chunk_from(mma_lane() % 16, mma_lane() / 16, row, 2 * step));
    // lesson 14]
  }
  // The fragment of A where A is this tile transposed: the 16 rows of A are columns of the tile from `column` on, and
  // the columns of one step are rows of the tile. In TF32 these rows are in the order that fragment_of_sums explains.
  __device__ void load_a_transposed(int column, int step, uint32_t (&a)[4]) const {
    if constexpr (sizeof(T) == 2) {
      const int lane = mma_lane();
      load_matrices<true>(a, chunk_from(lane / 16 * 8 + lane % 8, lane / 8 % 2, 16 * step, column / in_chunk));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = column + mma_g() + 8 * (i % 2);
        a[i] = __float_as_uint(chunk(8 * step + 2 * mma_t() + i / 2, c / in_chunk)[c % in_chunk]);
      }
    }
  }
  // Stores the sums of a product as the first 16 rows of the tile.
  __device__ void store_sums(const float (&sums)[columns / 8][4]) const {
    // [lesson 14
#pragma unroll
    for (int n = 0; n < columns / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int c = 8 * n + 2 * mma_t();
        const float first = sums[n][2 * half], second = sums[n][2 * half + 1];
        T* const to = chunk(mma_g() + 8 * half, c / in_chunk) + c % in_chunk;
        if constexpr (sizeof(T) == 2)
          *reinterpret_cast<uint32_t*>(to) = pack_bfloat16(first, second);
        else
          pack<2>(to, 0) = {first, second};
      }
    // lesson 14]
  }
};

// The sums of one strip of 16 rows, for the functions below, which take several.
template <int tiles>
__device__ float (&one_strip(float (&sums)[tiles][4]))[1][tiles][4] {
  return reinterpret_cast<float(&)[1][tiles][4]>(sums);
}

// products[i][n] = A B^T for A, rows 16 i .. 16 i + 15 of `own`, and rows 8 n .. 8 n + 7 of B = x. All strips i of 16
// rows use a fragment of B once it is loaded. With `add`, A B^T is added to what `products` has.
template <bool add = false, class T, int columns, int strips, int tiles>
__device__ void mma_row_products(const MmaTile<T, columns>& own, const MmaTile<T, columns>& x,
                                 float (&products)[strips][tiles][4]) {
#pragma unroll
  for (int i = 0; i < strips; ++i)
#pragma unroll
    for (int n = 0; n < tiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) products[i][n][e] = add ? products[i][n][e] : 0.0f;
        // [lesson 14
#pragma unroll
  for (int step = 0; step < MmaTile<T, columns>::steps; ++step) {
    uint32_t a[strips][4];
#pragma unroll
    for (int i = 0; i < strips; ++i) own.load_a(16 * i, step, a[i]);
#pragma unroll
    for (int n = 0; n < tiles; n += 2) {
      uint32_t b[4];  // of n and n + 1
      const int lane = mma_lane();
      load_matrices<false>(b, x.chunk_from(lane / 16 * 8 + lane % 8, lane / 8 % 2, 8 * n, 2 * step));
#pragma unroll
      for (int i = 0; i < strips; ++i) {
        mma<T>(products[i][n], a[i], b[0], b[1]);
        mma<T>(products[i][n + 1], a[i], b[2], b[3]);
      }
    }
  }
  // lesson 14]
}
// The fragment of A made from the sums of a product: its columns `step` mma_depth and following. A lane has columns 2 t
// and 2 t + 1 of the sums, which is what it needs of A in bf16. In TF32 they become columns t and t + 4 of A, so the
// rows of B must be read in that order too.
template <class T>
__device__ void fragment_of_sums(const float (*sums)[4], int step, uint32_t (&a)[4]) {
  if constexpr (sizeof(T) == 2) {
    const float(&first)[4] = sums[2 * step];
    const float(&second)[4] = sums[2 * step + 1];
    a[0] = pack_bfloat16(first[0], first[1]);
    a[1] = pack_bfloat16(first[2], first[3]);
    a[2] = pack_bfloat16(second[0], second[1]);
    a[3] = pack_bfloat16(second[2], second[3]);
  } else {
    const int order[] = {0, 2, 1, 3};
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = __float_as_uint(sums[step][order[i]]);
  }
}

// sums[i] += A[i] X for the rows of X of one step. a: the fragments of A, one for each strip of 16 rows. X: the columns
// of x from 8 `first` on; `first` is even.
template <class T, int columns, int strips, int tiles>
__device__ void mma_add_rows(const uint32_t (&a)[strips][4], const MmaTile<T, columns>& x, int step, int first,
                             float (&sums)[strips][tiles][4]) {
#pragma unroll
  for (int n = 0; n < tiles; n += 2) {
    uint32_t b[4];  // of columns 8 n and 8 n + 8
    if constexpr (sizeof(T) == 2) {
      load_matrices<true>(b, x.chunk_from(mma_lane() % 16, mma_lane() / 16, 16 * step, first + n));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        b[i] = __float_as_uint(
            x.chunk(8 * step + 2 * mma_t() + i % 2, 2 * (first + n + i / 2) + mma_g() / 4)[mma_g() % 4]);
    }
#pragma unroll
    for (int i = 0; i < strips; ++i) {
      mma<T>(sums[i][n], a[i], b[0], b[1]);
      mma<T>(sums[i][n + 1], a[i], b[2], b[3]);
    }
  }
}

// sums[i] += W[i] X, where W[i] are the sums of a product and X is x.
template <int strips, int tiles, class T, int columns>
__device__ void mma_weighted_rows(const float (&weights)[strips][tiles][4], const MmaTile<T, columns>& x,
                                  float (&sums)[strips][columns / 8][4]) {
#pragma unroll
  for (int step = 0; step < 8 * tiles / mma_depth<T>; ++step) {
    uint32_t a[strips][4];
#pragma unroll
    for (int i = 0; i < strips; ++i) fragment_of_sums<T>(weights[i], step, a[i]);
    mma_add_rows(a, x, step, 0, sums);
  }
}

// Writes `factor` times this thread's sums of a row, sums[n][2 half] and sums[n][2 half + 1], to `row`, or adds them to
// it. A factor of 0 makes the result 0, even if the sums are NaN.
template <class T, int tiles>
__device__ void write_sums(const float (&sums)[tiles][4], int half, float factor, T* row, int columns,
                           bool add = false) {
  Pack<T, 2> before[tiles];  // all are loaded before the first is written, or each load would wait for the one before
#pragma unroll
  for (int n = 0; n < tiles; ++n) {
    const int c = 8 * n + 2 * mma_t();
    before[n] = add && c < columns ? pack<2>(row, c / 2) : Pack<T, 2>{};
  }
#pragma unroll
  for (int n = 0; n < tiles; ++n) {
    const int c = 8 * n + 2 * mma_t();
    if (c >= columns) continue;
    const float first = (factor == 0 ? 0.0f : sums[n][2 * half] * factor) + (add ? float(before[n].element[0]) : 0.0f);
    const float second =
        (factor == 0 ? 0.0f : sums[n][2 * half + 1] * factor) + (add ? float(before[n].element[1]) : 0.0f);
    if constexpr (sizeof(T) == 2)
      *reinterpret_cast<uint32_t*>(row + c) = pack_bfloat16(first, second);
    else
      pack<2>(row, c / 2) = {first, second};
  }
}

}  // namespace cairn::gpu
