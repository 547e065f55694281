#pragma once
// What the attention kernels share: masks and dropout of a tile of scores, the running softmax, and products of tiles
// in float32 through shared memory.
#include <cmath>

#include "core/kernels/attention.h"
#include "cuda/common.cuh"

namespace cairn::gpu {

// Optimization barrier: returns x, which the compiler cannot see. So it computes values that depend on x where they are
// needed, instead of holding them in registers across a loop. The kernels have no registers to spare.
inline __device__ int optimization_barrier(int x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// One (batch element, head): its valid queries and keys, and which of them see each other.
struct BatchHead {
  int64_t index, batch, head;
  int N;                         // queries, valid or not
  int queries, keys;             // valid ones
  const uint8_t* allowed;        // may query 0 attend to key 0; null: all may
  int64_t query_step, key_step;  // of `allowed`
  Positions positions;

  __device__ BatchHead(const AttentionSize& size, const Mask& mask, int64_t batch_head)
      : index(batch_head),
        batch(batch_head / size.H),
        head(batch_head % size.H),
        N(int(size.N)),
        queries(int(min(max(mask.queries(batch, head, size.N), int64_t{0}), size.N))),
        keys(int(min(max(mask.keys(batch, head, size.S), int64_t{0}), size.S))),
        allowed(mask.allowed_of(batch, head)),
        query_step(mask.allowed_query),
        key_step(mask.allowed_key),
        positions(mask) {}

  template <class T>
  __device__ T* row(const HeadView<T>& x, int64_t number) const {
    return x.at(batch, number, head);
  }
  __device__ bool visible(int query, int key) const {
    return query < queries && key < keys && positions.sees(query, key) &&
           (!allowed || allowed[query * query_step + key * key_step]);
  }
  // Bit l: query may attend to key `first` + l.
  __device__ unsigned visible_keys(int query, int first) const {
    unsigned bits = 0;
#pragma unroll
    for (int l = 0; l < 4; ++l) bits |= unsigned(visible(query, first + l)) << l;
    return bits;
  }
  // Whether a score of queries [q0, q1) and keys [k0, k1) may be masked.
  __device__ bool masks(int q0, int q1, int k0, int k1) const {
    return allowed || q1 > queries || k1 > keys || !positions.sees_all(q0, q1, k0, k1);
  }
  // The same where each query is a row of the result. Rows beyond N are never stored, so they need no mask.
  __device__ bool masks_rows(int q0, int q1, int k0, int k1) const { return masks(q0, min(q1, N), k0, k1); }
  // The first key, not before `from`, that one of `rows` queries from q0 on may see; at least `keys` if there is none.
  // next_query: the first query that may see one of `rows` keys from k0 on. `from` and the result are multiples of 4.
  __device__ int next_key(int q0, int rows, int from) const {
    return positions.next_keys(q0, min(q0 + rows, queries), from, keys).begin;
  }
  __device__ int next_query(int k0, int rows, int from) const {
    return positions.next_queries(k0, min(k0 + rows, keys), from, queries).begin;
  }
  // With a causal mask, queries before q1 see only keys before this one.
  __device__ int end_of_keys(int q1) const { return positions.causal ? min(keys, q1) : keys; }
};

// The task of a block: a tile of rows of a batch_head, a tile of columns, and one of `splits` splits of the keys.
struct TileTask {
  int64_t batch_head;
  int row, column, split, splits;

  // Block 0 takes tile `first_tile` of the rows.
  __device__ TileTask(int64_t rows, int tile_rows, int64_t columns, int tile_columns, int splits_of_keys = 1,
                      int64_t first_tile = 0)
      : splits(splits_of_keys) {
    int64_t block = blockIdx.x;
    const int64_t tiles = ceil_div(rows, tile_rows), across = count_chunks(columns, tile_columns);
    column = int(block % across) * tile_columns, block /= across;
    split = int(block % splits), block = block / splits + first_tile;
    row = int(block % tiles) * tile_rows;
    batch_head = block / tiles;
  }
  // The keys of the split. Splits of the S keys begin at multiples of `unit`.
  __device__ int first_key(int64_t S, int unit = 64) const { return int(split * ceil_div(S, unit) / splits) * unit; }
  __device__ int end_key(int64_t S, int unit = 64) const {
    return int((split + 1) * ceil_div(S, unit) / splits) * unit;
  }
};

// The softmax of a row of scores (times log2 e), or of some of them: the maximum, and the sum of 2^(score - maximum).
struct alignas(8) RowSoftmax {
  float maximum, sum;

  __device__ float logsumexp() const { return sum == 0 ? -INFINITY : maximum * ln_2 + logf(sum); }
  // The weight of a score is 2^(score - lse2).
  __device__ float lse2() const { return sum == 0 ? 0.0f : finite_shift(maximum) + log2f(sum); }
};
// Combines part(0), ..., part(n - 1) into the softmax of the whole row. A warp computes it.
template <class F>
__device__ RowSoftmax join_softmax(int n, F part) {
  RowSoftmax all{-INFINITY, 0};
#pragma unroll 1
  for (int i = int(threadIdx.x % 32); i < n; i += 32) all.maximum = fmaxf(all.maximum, part(i).maximum);
  all.maximum = warp_reduce(all.maximum, Max{});
#pragma unroll 1
  for (int i = int(threadIdx.x % 32); i < n; i += 32)
    all.sum = fmaf(part(i).sum, exp2_approx(part(i).maximum - finite_shift(all.maximum)), all.sum);
  all.sum = warp_reduce(all.sum, Sum{});
  return all;
}

// The running softmax of `rows` rows of scores (times log2 e): maximum and sum of exponentials over the tiles so far
// (Milakov & Gimelshein 2018). `lanes` neighboring lanes share a row. All lanes of a warp call it together.
template <int rows, int lanes>
struct RunningSoftmax {
  float running_max[rows], sum[rows];  // sum: of this lane's scores

  __device__ RunningSoftmax() {
#pragma unroll
    for (int i = 0; i < rows; ++i) running_max[i] = -INFINITY, sum[i] = 0;
  }
  __device__ float shift(int i) const { return finite_shift(running_max[i]); }
  // Raises the running maximum of row i to the largest new score of its lanes (`largest`: of this lane). Returns the
  // factor by which the caller must correct its sums so far. A NaN does not change the maximum, but its weight is NaN.
  __device__ float raise(int i, float largest) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, distance));
    const float before = running_max[i];
    running_max[i] = fmaxf(before, largest);
    const float correction = exp2_approx(before - shift(i));
    sum[i] *= correction;
    return correction;
  }
  // The weight of a score relative to the running maximum, which is added to the sum. Multiplies the score by `scale`.
  __device__ float weight(int i, float score, float scale = 1) {
    const float value = exp2_approx(fmaf(score, scale, -shift(i)));
    sum[i] += value;
    return value;
  }
  // Adds up the sums of the lanes, after the last tile. Only then are inverse() and logsumexp() valid.
  __device__ void finish() {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int distance = lanes / 2; distance > 0; distance /= 2)
        sum[i] += __shfl_xor_sync(full_warp, sum[i], distance);
  }
  __device__ float inverse(int i) const { return sum[i] == 0 ? 0.0f : 1 / sum[i]; }
  __device__ float logsumexp(int i) const { return RowSoftmax{running_max[i], sum[i]}.logsumexp(); }
};

// The backward pass needs these of a query: lse2 (0 where there is none), and delta, the sum of A dA over the keys.
struct alignas(8) QueryState {
  float lse2, delta;

  // dA of a key from z dout . v: the same where there are no top keys.
  __device__ float weight_gradient(float g, bool) const { return g; }
};

// The dropout of a batch_head.
struct TileDropout {
  bool active;
  PhiloxKey key{};
  uint32_t row, threshold;
  float scale;

  __device__ TileDropout(const Dropout& dropout, const BatchHead& batch_head)
      : active(dropout.active()),
        row(dropout.draw.row(batch_head.index)),
        threshold(dropout.threshold()),
        scale(dropout.scale()) {
    if (active) key = dropout.draw.key();
  }
  // A copy behind an optimization barrier: otherwise the keys of Philox's ten rounds stay in 20 registers across a
  // loop.
  __device__ TileDropout behind_barrier() const {
    TileDropout same = *this;
    same.key = {uint32_t(optimization_barrier(int(key.a))), uint32_t(optimization_barrier(int(key.b)))};
    return same;
  }
  // Bit l: the weight of key `first` + l is kept. `first` is a multiple of 4.
  __device__ unsigned keep(int query, int first) const {
    const PhiloxWords words = Dropout::words(key, row, uint32_t(query), uint32_t(first));
    unsigned bits = 0;
#pragma unroll
    for (int l = 0; l < 4; ++l) bits |= unsigned(words.w[l] >= threshold) << l;
    return bits;
  }
};

// One bit for each of a thread's up to 32 scores: bit 4 n + l is bit l of four(n). A loop apart from the arithmetic,
// because unrolled it would take most of the registers and of the code.
template <int fours = 8, class F>
__device__ unsigned score_bits(F four) {
  unsigned bits = 0;
#pragma unroll 1
  for (int n = 0; n < fours; ++n) bits |= four(n) << (4 * n);
  return bits;
}

// ---- Products of tiles of 64 x 64 in float32, by 128 threads. A half-warp has 8 rows of the tile, and each of its
// threads 4 columns of them. Operands go through shared memory 16 columns (or rows) at a time.
inline constexpr int tile = 64, tile_depth = 16, tile_threads = 128;
inline constexpr int tile_bytes = 4 * (2 * tile * (tile_depth + 4) + tile * (tile + 4));  // of shared memory

// The rows and the first column of this thread. Its rows are 4 neighbors from 4 y on and 4 from 32 + 4 y on. So dropout
// draws once for four keys, whether keys are columns or rows.
inline __device__ int row_offset(int i) { return i % 4 + 32 * (i / 4); }
inline __device__ int tile_row(int i = 0) { return 4 * int(threadIdx.x / 16) + row_offset(i); }
inline __device__ int tile_column() { return 4 * int(threadIdx.x % 16); }

using Pack4 = Pack<float, 4>;
using TileOf = float[8][4];

// Bits of a tile of scores. Where the tile's rows are queries, bit 4 i + j is for query tile_row(i) and key
// tile_column() + j. With key_rows, bit key_bit(i, j) is for key tile_row(i) and query tile_column() + j. f(query, key)
// returns the bits of four keys from `key` on.
inline __device__ constexpr int key_bit(int i, int j) { return 4 * (i / 4 * 4 + j) + i % 4; }
template <bool key_rows, class F>
__device__ unsigned tile_bits(int q0, int k0, F f) {
  return score_bits([&](int n) {
    return key_rows ? f(q0 + tile_column() + n % 4, k0 + tile_row(n / 4 * 4)) : f(q0 + tile_row(n), k0 + tile_column());
  });
}
// Whether the query may attend to the key, and whether dropout keeps that weight.
template <bool key_rows>
__device__ unsigned visible_bits(const BatchHead& batch_head, int q0, int k0) {
  const bool masks =
      key_rows ? batch_head.masks(q0, q0 + tile, k0, k0 + tile) : batch_head.masks_rows(q0, q0 + tile, k0, k0 + tile);
  if (!masks) return ~0u;
  return tile_bits<key_rows>(q0, k0, [&](int query, int key) { return batch_head.visible_keys(query, key); });
}
template <bool key_rows>
__device__ unsigned kept_bits(const TileDropout& dropout, int q0, int k0) {
  if (!dropout.active) return ~0u;
  const TileDropout here = dropout.behind_barrier();
  return tile_bits<key_rows>(q0, k0, [&](int query, int key) { return here.keep(query, key); });
}

// Rows of a matrix from `data` on. The first `rows` rows and `columns` columns exist.
template <class T>
struct RowBlock {
  using Element = T;
  const T* data;
  int64_t stride;
  int rows, columns;

  __device__ bool has(int r) const { return r < rows; }
  __device__ const T* row(int r) const { return data + r * stride; }
  __device__ void skip_rows(int n) { data += n * stride, rows -= n; }
};

// Copies height x width elements to shared memory as float; elements that x does not have become 0. Row r becomes row
// place(r). A row takes width + 4 floats, which spreads rows over the banks.
template <int height, int width, class Rows, class Place>
__device__ void load_rows(const Rows& x, float* to, Place place) {
  using T = typename Rows::Element;
#pragma unroll
  for (int n = 0; n < height * width / 4 / tile_threads; ++n) {
    const int i = n * tile_threads + int(threadIdx.x), r = i / (width / 4), c = i % (width / 4) * 4;
    Pack4 value{};
    if (x.has(r) && c < x.columns) {
      const T* const from = x.row(r) + c;
      if (c + 4 <= x.columns && holds_packs<4>(from)) {
        const Pack<T, 4> four = pack<4>(from, 0);
#pragma unroll
        for (int e = 0; e < 4; ++e) value.element[e] = float(four.element[e]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (c + e < x.columns) value.element[e] = float(from[e]);
      }
    }
    pack<4>(to + place(r) * (width + 4), c / 4) = value;
  }
}

// products = A B^T over all columns: row tile_row(i) of A times row tile_column() + j of B. `workspace` is the shared
// memory for both. B's row 4 x + j becomes row 16 j + x there, so that neighboring threads read neighboring rows.
template <class A, class B>
__device__ void row_products(A a, B b, float* workspace, TileOf& products) {
  constexpr int stride = tile_depth + 4;
  float* const rows = workspace + tile_row() * stride;
  float* const columns = workspace + (tile + int(threadIdx.x % 16)) * stride;
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) products[i][j] = 0;

  while (a.columns > 0) {
    __syncthreads();
    load_rows<tile, tile_depth>(a, workspace, [](int r) { return r; });
    load_rows<tile, tile_depth>(b, workspace + tile * stride, [](int r) { return r % 4 * 16 + r / 4; });
    __syncthreads();
#pragma unroll 1
    for (int d = 0; d < tile_depth / 4; ++d) {
      Pack4 y[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) y[j] = pack<4>(columns + 16 * j * stride, d);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const Pack4 x = pack<4>(rows + row_offset(i) * stride, d);
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) products[i][j] = fmaf(x.element[e], y[j].element[e], products[i][j]);
      }
    }
    a.data += tile_depth, a.columns -= tile_depth;
    b.data += tile_depth, b.columns -= tile_depth;
  }
}

// The tile of weights that add_weighted_rows reads. A half-warp reads only rows that it has written itself.
inline __device__ float* tile_weights(float* workspace) { return workspace + 2 * tile * (tile_depth + 4); }
inline __device__ void store_weights(float* workspace, const TileOf& weights) {
  __syncwarp();  // all have read the previous weights
#pragma unroll
  for (int i = 0; i < 8; ++i)
    pack<4>(tile_weights(workspace) + tile_row(i) * (tile + 4), tile_column() / 4) =
        Pack4{weights[i][0], weights[i][1], weights[i][2], weights[i][3]};
  __syncwarp();
}

// Stores the transposed tile, for sums over its rows. Here a warp reads rows that other warps have written.
inline __device__ void store_transposed(float* workspace, const TileOf& weights) {
  __syncthreads();  // all have read the previous weights
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      pack<4>(tile_weights(workspace) + (tile_column() + j) * (tile + 4), tile_row(i) / 4) =
          Pack4{weights[i][j], weights[i + 1][j], weights[i + 2][j], weights[i + 3][j]};
  __syncthreads();
}

// sum += W X for the stored weights and `width` columns of X. This thread has four columns in each 64.
template <int width, class Rows>
__device__ void add_weighted_rows(Rows x, float* workspace, float (&sum)[8][width / 16]) {
  const float* const weights = tile_weights(workspace) + tile_row() * (tile + 4);
  const int last = min(x.rows, tile);
  for (int r0 = 0; r0 < last; r0 += tile_depth) {
    __syncthreads();
    load_rows<tile_depth, width>(x, workspace, [](int r) { return r; });
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < tile_depth; r += 4) {
      Pack4 y[4][width / 64];
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int part = 0; part < width / 64; ++part)
          y[e][part] = pack<4>(workspace + (r + e) * (width + 4), tile_column() / 4 + 16 * part);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const Pack4 w = pack<4>(weights + row_offset(i) * (tile + 4), (r0 + r) / 4);
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int c = 0; c < width / 16; ++c) sum[i][c] = fmaf(w.element[e], y[e][c / 4].element[c % 4], sum[i][c]);
      }
    }
    x.skip_rows(tile_depth);
  }
}

// Bit 4 i + j is f(4 i + j, tile_row(i), tile_column() + j). A loop, because f is long.
template <class F>
__device__ unsigned pair_bits(F f) {
  unsigned bits = 0;
#pragma unroll 1
  for (int bit = 0; bit < 32; ++bit) bits |= unsigned(f(bit, tile_row(bit / 4), tile_column() + bit % 4)) << bit;
  return bits;
}

// Turns a tile of products into weights, and corrects `sum`, the weighted rows so far, for the new running maximum.
// `visible` and `keep` have the bits of visible_bits and kept_bits.
template <int items>
__device__ void weigh_products(TileOf& s, float scale_2, unsigned visible, unsigned keep,
                               RunningSoftmax<8, 16>& softmax, float (&sum)[8][items]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      s[i][j] = visible >> (4 * i + j) & 1 ? s[i][j] * scale_2 : -INFINITY;
      largest = fmaxf(largest, s[i][j]);
    }
    const float correction = softmax.raise(i, largest);
#pragma unroll
    for (int c = 0; c < items; ++c) sum[i][c] *= correction;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float weight = softmax.weight(i, s[i][j]);
      s[i][j] = keep >> (4 * i + j) & 1 ? weight : 0.0f;
    }
  }
}

// Writes `factor` times a row of add_weighted_rows's sums to the first `columns` elements of `to`, or adds it to them.
// A factor of 0 makes the result 0, even if the sum is NaN.
template <int items, class T>
__device__ void write_row(const float (&sum)[items], float factor, T* to, int columns, bool add = false) {
#pragma unroll
  for (int part = 0; part < items / 4; ++part) {
    const int c = tile_column() + 64 * part;
    Pack<T, 4> four;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      four.element[e] =
          T((factor == 0 ? 0.0f : sum[4 * part + e] * factor) + (add && c + e < columns ? float(to[c + e]) : 0.0f));
    if (c + 4 <= columns && holds_packs<4>(to + c))
      pack<4>(to + c, 0) = four;
    else
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (c + e < columns) to[c + e] = four.element[e];
  }
}

// A block for each of `tiles` tiles of rows and each `width` columns. At least one for a tile of rows, because a block
// also computes results without columns, such as logsumexp.
inline Launch tile_blocks(Stream stream, int64_t tiles, int64_t columns, int width) {
  return {tiles * count_chunks(columns, width), tile_threads, 0, stream};
}

// Calls f<width>() with the number of columns that a block computes, 64 or 128. Other blocks compute further columns.
template <class F>
void with_tile_width(int64_t columns, F f) {
  columns <= 64 ? f.template operator()<64>() : f.template operator()<128>();
}

}  // namespace cairn::gpu
