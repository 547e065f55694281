// Attention, out = softmax(Q K^T / 8) V, for heads of N queries, keys and values of D = 64 bfloat16 numbers: its
// forward pass in five steps, its gradient in two, and in three the top part of i-clustered attention. out is float32.
//
// A head has 8 N D bytes of operands and needs two products of N^2 D multiply-adds each, so arithmetic should be the
// bound. What stands in the way is the N x N matrix between the products. For one head with N = 4096 on an H100: a
// product takes 36 us on FP32 units (128 multiply-adds a clock and multiprocessor) and 7 us on tensor cores. The matrix
// in float32 is 67 MB; to write or to read it takes 22 us. cuda/attention.cu and cuda/topk_attention.cu are the
// library's.
#include <cmath>

#include "core/workspace.h"
#include "cuda/ladder/ladder.h"
#include "cuda/mma_tiles.cuh"

namespace cairn::ladder {
namespace {

using namespace gpu;
using Elements = const bfloat16*;

constexpr int D = head_size, side = 64, threads = 256;
constexpr float scale = 0.125f;  // 1 / sqrt(D)

// ---- 1. The formula as it stands: a thread an element of the matrix, softmax over its rows, a thread an element of
// out. What it costs: neighboring lanes read rows of K that are 128 bytes apart, so that each load touches 32 lines of
// the L1 cache and takes 32 clocks. 33 million such loads take 4.8 ms. The second product has two loads a multiply-add,
// 0.3 ms. The matrix is written, read, written and read: 0.1 ms.
__global__ void __launch_bounds__(threads) thread_a_score(Heads size, Elements q, Elements k, float* scores) {
  const int j = int(blockIdx.x) * threads + int(threadIdx.x), i = int(blockIdx.y), head = int(blockIdx.z);
  if (j >= size.N) return;
  Elements of_q = q + (int64_t(head) * size.N + i) * D, of_k = k + (int64_t(head) * size.N + j) * D;
  float sum = 0;
  for (int d = 0; d < D; ++d) sum += float(of_q[d]) * float(of_k[d]);
  scores[(int64_t(head) * size.N + i) * size.N + j] = scale * sum;
}

// sums[i] = sum over l of matrix[i][l] x[l], or of matrix[l][i] x[l] where `transposed`.
__global__ void __launch_bounds__(threads)
    thread_a_sum(Heads size, bool transposed, const float* matrix, Elements x, float* sums) {
  const int64_t row = int64_t(blockIdx.x) * (threads / D) + threadIdx.x / D, i = row % size.N, head = row / size.N;
  if (head >= size.heads) return;
  const int c = int(threadIdx.x % D);
  float sum = 0;
  for (int64_t l = 0; l < size.N; ++l)
    sum += matrix[head * size.N * size.N + (transposed ? l * size.N + i : i * size.N + l)] *
           float(x[(head * size.N + l) * D + c]);
  sums[row * D + c] = sum;
}

// ---- Tiles of 64 x 64 floats in shared memory. Rows are a word longer, so that neighboring rows lie in different
// banks. Of a product a thread has 4 x 4 elements: rows y + 16 r and columns x + 16 c.
using Tile = float[side][side + 1];
using Mine = float[4][4];
__device__ int row_of(int r) { return int(threadIdx.x / 16) + 16 * r; }
__device__ int column_of(int c) { return int(threadIdx.x % 16) + 16 * c; }

// The first rows and columns of x, of which so many exist; zeros elsewhere.
template <class T>
__device__ void load(const T* x, int64_t stride, int rows, int columns, Tile& tile) {
  for (int i = int(threadIdx.x); i < side * side; i += threads) {
    const int r = i / side, c = i % side;
    tile[r][c] = r < rows && c < columns ? float(x[r * stride + c]) : 0.0f;
  }
}
// The rows of a head from `first` on.
__device__ void load_rows(Elements x, int first, int N, Tile& tile) {
  load(x + int64_t(first) * D, D, N - first, D, tile);
}

// sums += a b^T, or a b where not `transposed`. For each l: 8 loads of shared memory for 16 multiply-adds.
template <bool transposed>
__device__ void multiply(const Tile& a, const Tile& b, Mine& sums) {
  for (int l = 0; l < side; ++l) {
    float of_a[4], of_b[4];
    for (int n = 0; n < 4; ++n) {
      of_a[n] = a[row_of(n)][l];
      of_b[n] = transposed ? b[column_of(n)][l] : b[l][column_of(n)];
    }
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < 4; ++c) sums[r][c] += of_a[r] * of_b[c];
  }
}

__device__ void store(const Mine& sums, int rows, int columns, int64_t stride, float* x) {
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c)
      if (row_of(r) < rows && column_of(c) < columns) x[row_of(r) * stride + column_of(c)] = sums[r][c];
}

// ---- 2. Both products in tiles. What comes from memory lies side by side. Shared memory gives a warp's load a clock,
// so that 8 loads for 16 multiply-adds make 72 us a product, twice the floor; matmul.cu goes on from there. Expected:
// 145 us and 90 us for the matrix instead of 5.2 ms, 20 times.
__global__ void __launch_bounds__(threads) tiled_scores(Heads size, Elements q, Elements k, float* scores) {
  __shared__ Tile of_q, of_k;
  const int j0 = int(blockIdx.x) * side, i0 = int(blockIdx.y) * side;
  const int64_t head = blockIdx.z, start = head * size.N * D;
  load_rows(q + start, i0, size.N, of_q);
  load_rows(k + start, j0, size.N, of_k);
  __syncthreads();
  Mine s = {};
  multiply<true>(of_q, of_k, s);
  for (auto& row : s)
    for (float& score : row) score *= scale;
  store(s, size.N - i0, size.N - j0, size.N, scores + (head * size.N + i0) * size.N + j0);
}

__global__ void __launch_bounds__(threads) tiled_output(Heads size, const float* weights, Elements v, float* out) {
  __shared__ Tile of_weights, of_v;
  const int i0 = int(blockIdx.x) * side;
  const int64_t head = blockIdx.y;
  Mine sums = {};
  for (int j0 = 0; j0 < size.N; j0 += side) {
    load(weights + (head * size.N + i0) * size.N + j0, size.N, size.N - i0, size.N - j0, of_weights);
    load_rows(v + head * size.N * D, j0, size.N, of_v);
    __syncthreads();
    multiply<false>(of_weights, of_v, sums);
    __syncthreads();  // the tiles are written again
  }
  store(sums, size.N - i0, D, D, out + (head * size.N + i0) * D);
}

// op over `lanes` neighboring lanes, in each of them.
template <int lanes, class Op>
__device__ float reduce(float value, Op op) {
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value = op(value, __shfl_xor_sync(full_warp, value, distance));
  return value;
}

// ---- 3. No matrix. A block goes along the keys with 64 queries. It keeps the largest score of each query so far, and
// the sums relative to that; a larger score makes it scale them down (Milakov & Gimelshein 2018; Dao et al. 2022).
// Weights never leave shared memory. K and V are read again for every 64 queries, 67 MB a head, but out of the L2
// cache. Expected: 160 us, of which the products take 145, instead of 235: 1.5 times.
constexpr int online_tiles = 3;
__global__ void __launch_bounds__(threads) online(Heads size, Elements q, Elements k, Elements v, float* out) {
  Tile* const tiles = dynamic_shared<Tile>();
  Tile &of_q = tiles[0], &of_k_or_v = tiles[1], &weights = tiles[2];
  const int i0 = int(blockIdx.x) * side;
  const int64_t start = int64_t(blockIdx.y) * size.N * D;
  Mine sums = {};
  float maximum[4], sum[4] = {};
  for (float& value : maximum) value = -INFINITY;
  load_rows(q + start, i0, size.N, of_q);
  for (int j0 = 0; j0 < size.N; j0 += side) {
    load_rows(k + start, j0, size.N, of_k_or_v);
    __syncthreads();
    Mine s = {};
    multiply<true>(of_q, of_k_or_v, s);
    for (int r = 0; r < 4; ++r) {  // 16 lanes share a row
      float larger = maximum[r];
      for (int c = 0; c < 4; ++c) {
        s[r][c] = j0 + column_of(c) < size.N ? scale * s[r][c] : -INFINITY;
        larger = fmaxf(larger, s[r][c]);
      }
      larger = reduce<16>(larger, Max{});
      const float correction = expf(maximum[r] - larger);
      maximum[r] = larger;
      sum[r] *= correction;
      for (int c = 0; c < 4; ++c) {
        const float weight = expf(s[r][c] - larger);
        sum[r] += weight;
        sums[r][c] *= correction;
        weights[row_of(r)][column_of(c)] = weight;
      }
    }
    __syncthreads();  // all have done with K
    load_rows(v + start, j0, size.N, of_k_or_v);
    __syncthreads();
    multiply<false>(weights, of_k_or_v, sums);
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r) {
    const float total = reduce<16>(sum[r], Sum{});
    for (int c = 0; c < 4; ++c) sums[r][c] /= total;
  }
  store(sums, size.N - i0, D, D, out + start + int64_t(i0) * D);
}

// ---- 4. Tensor cores. A warp takes 16 queries. mma.sync leaves each lane scores of two rows, g and g + 8
// (cuda/mma.cuh); four lanes share a row. The lanes turn scores into weights in registers, where the second product
// wants them, as bfloat16. The products would take 14 us. But for 64 keys a warp issues a thousand instructions, of
// which 64 are mma.sync: 18 us for all. Expected: 25 us instead of 160, 6 times.

// The maxima and the sums of weights of a thread's two rows.
struct FragmentSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {};

  // Turns products q . k into weights and scales down the sums so far. The first `there` columns exist.
  template <int tiles>
  __device__ void operator()(float (&s)[tiles][4], int there, float (&sums)[D / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float larger = maximum[half];
      const auto each = [&](auto f) {
#pragma unroll
        for (int n = 0; n < tiles; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) f(s[n][2 * half + e], 8 * n + 2 * mma_t() + e);
      };
      each([&](float& score, int column) {
        score = column < there ? scale * score : -INFINITY;
        larger = fmaxf(larger, score);
      });
      larger = reduce<4>(larger, Max{});
      const float correction = expf(maximum[half] - larger);
      maximum[half] = larger;
      sum[half] *= correction;
      each([&](float& score, int) { sum[half] += score = expf(score - larger); });
#pragma unroll
      for (int n = 0; n < D / 8; ++n) sums[n][2 * half] *= correction, sums[n][2 * half + 1] *= correction;
    }
  }
};

using HalfTile = MmaTile<bfloat16, D>;

// ---- 5. `stages` = 2: the next keys and values are copied while these are multiplied, to a second pair of tiles: 40
// KB instead of 24, and one barrier instead of two. In step 4 (`stages` = 1) a block waits some 700 clocks for each of
// 64 pairs. But the three other blocks of its multiprocessor have work for longer than that. Expected: 1.1 times; more
// where there are fewer blocks.
template <int stages>
__global__ void __launch_bounds__(mma_threads)
    on_tensor_cores(Heads size, Elements q, Elements k, Elements v, float* out) {
  const HalfTile of_q{dynamic_shared<bfloat16>()}, others = of_q.row(side);
  const int i0 = int(blockIdx.x) * side, strip = int(threadIdx.x / 32) * 16;
  const int64_t start = int64_t(blockIdx.y) * size.N * D;
  float sums[1][D / 8][4] = {};
  FragmentSoftmax softmax;
  // To a pair of tiles, the first (place = 0) or the second (2 side).
  const auto copy = [&](int j0, int place) {
    others.row(place).template copy<side>(k + start + int64_t(j0) * D, D, size.N - j0, D);
    others.row(place + side).template copy<side>(v + start + int64_t(j0) * D, D, size.N - j0, D);
    commit_copies();
  };
  of_q.copy<side>(q + start + int64_t(i0) * D, D, size.N - i0, D);
  copy(0, 0);
  for (int j0 = 0, place = 0; j0 < size.N; j0 += side) {
    wait_for_copies<0>();
    __syncthreads();
    const int now = place;
    if (stages == 2) {
      place = 2 * side - place;
      if (j0 + side < size.N) copy(j0 + side, place);
    }
    float s[1][side / 8][4];
    mma_row_products<1, side>([&](int, int step, uint32_t(&a)[4]) { of_q.row(strip).load_a(step, a); }, others.row(now),
                              s);
    softmax(s[0], size.N - j0, sums[0]);
    mma_weighted_rows<1, side>(s, others.row(now + side), sums);
    if (stages == 1) {
      __syncthreads();  // all have done with these tiles
      if (j0 + side < size.N) copy(j0 + side, 0);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const int i = i0 + strip + mma_g() + 8 * half;
    const float total = reduce<4>(softmax.sum[half], Sum{});
    if (i < size.N) write_sums(sums[0], half, 1 / total, out + start + int64_t(i) * D, D);
  }
}

// ==== The gradient. With the weights W = exp(Q K^T / 8 - logsumexp) and delta_i = dout_i . out_i, which are N numbers:
//   dS = W (dout V^T - delta) / 8,  dQ = dS K,  dK = dS^T Q,  dV = W^T dout
// These are five products, two and a half times the forward pass.

// ---- 1. W and dS in memory. As in step 1 above: two dot products of rows that are 128 bytes apart, 9.6 ms, three sums
// of 0.3 ms, and 0.1 ms to write two matrices and to read three.
__global__ void __launch_bounds__(threads)
    thread_a_weight(Heads size, Elements q, Elements k, Elements v, Elements dout, const float* logsumexp,
                    const float* delta, float* weights, float* ds) {
  const int j = int(blockIdx.x) * threads + int(threadIdx.x);
  const int64_t row = int64_t(blockIdx.z) * size.N + blockIdx.y, other = int64_t(blockIdx.z) * size.N + j;
  if (j >= size.N) return;
  float s = 0, g = 0;
  for (int d = 0; d < D; ++d) {
    s += float(q[row * D + d]) * float(k[other * D + d]);
    g += float(dout[row * D + d]) * float(v[other * D + d]);
  }
  const float weight = expf(scale * s - logsumexp[row]);
  weights[row * size.N + j] = weight;
  ds[row * size.N + j] = scale * weight * (g - delta[row]);
}

// ---- 2. Weights are computed again, tile by tile, from Q, K and logsumexp: two kernels, for there are sums over keys
// and sums over queries, with seven products instead of five, but no matrix. A block has 64 rows of its own, queries
// for dQ and keys for dK and dV, and goes along the others. Expected: 7 times 72 us instead of 10.6 ms, 20 times.
// Tensor cores could do it in 50 us; the library's kernels use them.
constexpr int gradient_tiles = 5;
template <bool of_keys>
__global__ void __launch_bounds__(threads)
    tiled_gradient(Heads size, Elements own, Elements own_v, Elements other, Elements other_v, const float* logsumexp,
                   const float* delta, float* d_own, float* dv) {
  Tile* const tiles = dynamic_shared<Tile>();
  Tile &mine = tiles[0], &mine_v = tiles[1], &others = tiles[2], &others_v = tiles[3], &matrix = tiles[4];
  const int i0 = int(blockIdx.x) * side;
  const int64_t first_row = int64_t(blockIdx.y) * size.N, start = first_row * D;
  Mine sums = {}, sums_v = {};
  load_rows(own + start, i0, size.N, mine);
  load_rows(own_v + start, i0, size.N, mine_v);
  for (int j0 = 0; j0 < size.N; j0 += side) {
    load_rows(other + start, j0, size.N, others);
    load_rows(other_v + start, j0, size.N, others_v);
    __syncthreads();
    Mine s = {}, g = {};
    multiply<true>(mine, others, s);
    multiply<true>(mine_v, others_v, g);
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < 4; ++c) {
        const int query = of_keys ? j0 + column_of(c) : i0 + row_of(r);
        const bool there = query < size.N;
        s[r][c] = there ? expf(scale * s[r][c] - logsumexp[first_row + query]) : 0.0f;
        g[r][c] = there ? scale * s[r][c] * (g[r][c] - delta[first_row + query]) : 0.0f;
      }
    const auto add = [&](const Mine& part, const Tile& rows, Mine& to) {
      store(part, side, side, side + 1, matrix[0]);
      __syncthreads();
      multiply<false>(matrix, rows, to);
      __syncthreads();  // the matrix is written again
    };
    if (of_keys) add(s, others_v, sums_v);
    add(g, others, sums);
  }
  store(sums, size.N - i0, D, D, d_own + start + int64_t(i0) * D);
  if (of_keys) store(sums_v, size.N - i0, D, D, dv + start + int64_t(i0) * D);
}

// ==== The top part of i-clustered attention: a query attends to the 32 keys with the most attention of its cluster's
// centroid. That is N / 32 times less arithmetic, 0.3 us for both products of a head. Now it is reading the keys that
// counts: 32 keys and values, 8 KB, for a query of 128 bytes.

// out of one query by a warp: lane l has key l of the cluster, columns l and l + 32 of out.
// score(): q . k of this lane's key; value(l, c): column c of the value of key l.
template <class Score, class Value>
__device__ void attend_top(bool there, Score score, Value value, float* out) {
  const float s = there ? scale * score() : -INFINITY, weight = expf(s - warp_reduce(s, Max{}));
  const float share = weight / warp_reduce(weight, Sum{});
  const int lane = int(threadIdx.x % 32);
  float sums[2] = {};
  for (int l = 0; l < top_keys; ++l) {
    const float of_key = __shfl_sync(full_warp, share, l);
    sums[0] += of_key * value(l, lane);
    sums[1] += of_key * value(l, lane + 32);
  }
  out[lane] = sums[0], out[lane + 32] = sums[1];
}

// ---- 1. A warp a query. Each lane reads a key of its own: 64 loads of 32 lines each, 2048 clocks of the L1 cache.
// Values are read along rows. 4096 queries take 37 us a head, and 34 MB come from the L2 cache.
__global__ void __launch_bounds__(32 * rows_per_block)
    warp_a_query(Clusters size, Elements q, Elements k, Elements v, GroupView group, const int32_t* topk, float* out) {
  for (int64_t row = first_row(); row < int64_t(size.heads) * size.N; row += row_step()) {
    const int64_t head = row / size.N, start = head * size.N * D;
    const int key = topk[(head * size.C + group.labels[row]) * top_keys + threadIdx.x % 32];
    const auto score = [&] {
      float sum = 0;
      for (int d = 0; d < D; ++d) sum += float(q[row * D + d]) * float(k[start + int64_t(key) * D + d]);
      return sum;
    };
    const auto value = [&](int l, int c) {
      const int other = __shfl_sync(full_warp, key, l);
      return other < 0 ? 0.0f : float(v[start + int64_t(other) * D + c]);
    };
    attend_top(key >= 0, score, value, out + row * D);
  }
}

// ---- 2. A block a cluster: its keys and values come to shared memory once for all of its queries, some 41 of them, so
// that 0.8 MB a head come from the L2 cache. Rows that are a word longer than 64 make a lane's load one clock. A query
// takes 64 loads of keys, 64 of its own elements, 64 of values and 32 shuffles. Expected: 230 clocks of shared memory
// and L1 cache instead of 2100, 9 times.
__global__ void __launch_bounds__(threads) block_a_cluster(Clusters size, Elements q, Elements k, Elements v,
                                                           GroupView group, const int32_t* topk, float* out) {
  __shared__ float of_k[top_keys][D + 1], of_v[top_keys][D + 1];
  const int64_t head = blockIdx.y, start = head * size.N * D;
  const int32_t* const keys = topk + (head * size.C + blockIdx.x) * top_keys;
  for (int i = int(threadIdx.x); i < top_keys * D; i += threads) {
    const int l = i / D, c = i % D, key = keys[l];
    of_k[l][c] = key < 0 ? 0.0f : float(k[start + int64_t(key) * D + c]);
    of_v[l][c] = key < 0 ? 0.0f : float(v[start + int64_t(key) * D + c]);
  }
  __syncthreads();
  const int lane = int(threadIdx.x % 32);
  const int32_t* const range = group.offsets + head * (size.C + 1) + blockIdx.x;
  for (int i = range[0] + int(threadIdx.x / 32); i < range[1]; i += threads / 32) {
    const int64_t row = head * size.N + group.permutation[head * size.N + i];
    const auto score = [&] {
      float sum = 0;
      for (int d = 0; d < D; ++d) sum += float(q[row * D + d]) * of_k[lane][d];
      return sum;
    };
    attend_top(
        keys[lane] >= 0, score, [&](int l, int c) { return of_v[l][c]; }, out + row * D);
  }
}

// ---- 3. Tensor cores: the queries of a cluster stand together as the rows of a matrix, 16 a warp, and its keys as the
// other. 32 mma.sync for 16 queries take 100 clocks, 6 a query instead of 230; what is left is 8 KB for a cluster and
// 384 bytes for a query, most of it from and to memory, 1 us a head. Expected: 4 times.
constexpr int top_rows = side + 2 * top_keys;  // of shared memory

// Row r of the tile is row index(r) of x.
template <int height, class Index>
__device__ void gather(const HalfTile& tile, Elements x, int rows, Index index) {
  for (int i = int(threadIdx.x); i < height * HalfTile::chunks; i += mma_threads) {
    const int r = i / HalfTile::chunks, c = i % HalfTile::chunks;
    const bool there = r < rows;
    copy_async<16>(tile.chunk(r, c), there ? x + int64_t(index(r)) * D + c * HalfTile::in_chunk : x, there);
  }
}

__global__ void __launch_bounds__(mma_threads)
    cluster_on_tensor_cores(Clusters size, Elements q, Elements k, Elements v, GroupView group, const int32_t* topk,
                            float* out) {
  const HalfTile of_q{dynamic_shared<bfloat16>()}, of_k = of_q.row(side), of_v = of_k.row(top_keys);
  const int64_t head = blockIdx.y, start = head * size.N * D;
  const int32_t* const keys = topk + (head * size.C + blockIdx.x) * top_keys;
  const int32_t* const range = group.offsets + head * (size.C + 1) + blockIdx.x;
  const int32_t* const queries = group.permutation + head * size.N;
  const int present = __popc(__ballot_sync(full_warp, keys[threadIdx.x % 32] >= 0));  // missing keys stand last
  gather<top_keys>(of_k, k + start, present, [&](int r) { return keys[r]; });
  gather<top_keys>(of_v, v + start, present, [&](int r) { return keys[r]; });
  const int strip = int(threadIdx.x / 32) * 16;
  for (int first = range[0]; first < range[1]; first += side) {
    gather<side>(of_q, q + start, range[1] - first, [&](int r) { return queries[first + r]; });
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    float s[1][top_keys / 8][4], sums[1][D / 8][4] = {};
    FragmentSoftmax softmax;
    mma_row_products<1, top_keys>([&](int, int step, uint32_t(&a)[4]) { of_q.row(strip).load_a(step, a); }, of_k, s);
    softmax(s[0], present, sums[0]);
    mma_weighted_rows<1, top_keys>(s, of_v, sums);
    for (int half = 0; half < 2; ++half) {
      const int i = first + strip + mma_g() + 8 * half;
      const float total = reduce<4>(softmax.sum[half], Sum{});
      if (i < range[1]) write_sums(sums[0], half, 1 / total, out + start + int64_t(queries[i]) * D, D);
    }
    __syncthreads();  // the queries' tile is written again
  }
}

// ==== The launches

constexpr size_t half_tile = side * D * sizeof(bfloat16);
int64_t tiles_of(Heads size) { return ceil_div(size.N, side); }

// `scores` and `output` fill and use the matrix.
template <class Scores, class Output>
void run_with_matrix(Stream stream, Heads size, Scores scores, Output output) {
  Workspace workspace(Device::cuda);
  float* const matrix = workspace.take<float>(int64_t(size.heads) * size.N * size.N);
  scores(matrix);
  softmax_forward<float>(stream, {int64_t(size.heads) * size.N, size.N}, matrix, matrix);
  output(matrix);
}
Launch rows_of_matrix(Stream stream, Heads size) {
  return {{ceil_div(size.N, threads), size.N, size.heads}, threads, 0, stream};
}
Launch sums_of_rows(Stream stream, Heads size) {
  return {ceil_div(int64_t(size.heads) * size.N, threads / D), threads, 0, stream};
}

void run_naive(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  run_with_matrix(
      stream, size, [&](float* matrix) { launch(thread_a_score, rows_of_matrix(stream, size), size, q, k, matrix); },
      [&](float* matrix) { launch(thread_a_sum, sums_of_rows(stream, size), size, false, matrix, v, out); });
}
void run_tiled(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  run_with_matrix(
      stream, size,
      [&](float* matrix) {
        launch(tiled_scores, {{tiles_of(size), tiles_of(size), size.heads}, threads, 0, stream}, size, q, k, matrix);
      },
      [&](float* matrix) {
        launch(tiled_output, {{tiles_of(size), size.heads}, threads, 0, stream}, size, matrix, v, out);
      });
}
template <auto kernel, int threads_a_block, size_t shared>
void run(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  launch(kernel, {{tiles_of(size), size.heads}, threads_a_block, shared, stream}, size, q, k, v, out);
}

void run_naive_gradient(Stream stream, Heads size, Elements q, Elements k, Elements v, Elements dout,
                        const float* logsumexp, const float* delta, float* dq, float* dk, float* dv) {
  Workspace workspace(Device::cuda);
  const int64_t n = int64_t(size.heads) * size.N * size.N;
  float *const weights = workspace.take<float>(n), *const ds = workspace.take<float>(n);
  launch(thread_a_weight, rows_of_matrix(stream, size), size, q, k, v, dout, logsumexp, delta, weights, ds);
  const Launch sums = sums_of_rows(stream, size);
  launch(thread_a_sum, sums, size, false, ds, k, dq);
  launch(thread_a_sum, sums, size, true, ds, q, dk);
  launch(thread_a_sum, sums, size, true, weights, dout, dv);
}
void run_tiled_gradient(Stream stream, Heads size, Elements q, Elements k, Elements v, Elements dout,
                        const float* logsumexp, const float* delta, float* dq, float* dk, float* dv) {
  const Launch shape{{tiles_of(size), size.heads}, threads, gradient_tiles * sizeof(Tile), stream};
  launch(tiled_gradient<false>, shape, size, q, dout, k, v, logsumexp, delta, dq, nullptr);
  launch(tiled_gradient<true>, shape, size, k, v, q, dout, logsumexp, delta, dk, dv);
}

void run_warps(Stream stream, Clusters size, Elements q, Elements k, Elements v, GroupView group, const int32_t* topk,
               float* out) {
  launch(warp_a_query, rows_by_warps(stream, int64_t(size.heads) * size.N), size, q, k, v, group, topk, out);
}
template <auto kernel, int threads_a_block, size_t shared>
void run_clusters(Stream stream, Clusters size, Elements q, Elements k, Elements v, GroupView group,
                  const int32_t* topk, float* out) {
  launch(kernel, {{size.C, size.heads}, threads_a_block, shared, stream}, size, q, k, v, group, topk, out);
}

}  // namespace

std::vector<Step<Attention>> attention_steps() {
  std::vector<Step<Attention>> steps{{"the matrix in memory", run_naive},
                                     {"tiles in shared memory", run_tiled},
                                     {"online softmax, no matrix", run<online, threads, online_tiles * sizeof(Tile)>}};
  if (has_mma()) {
    steps.push_back({"tensor cores", run<on_tensor_cores<1>, mma_threads, 3 * half_tile>, true});
    steps.push_back({"copies run ahead", run<on_tensor_cores<2>, mma_threads, 5 * half_tile>, true});
  }
  return steps;
}

std::vector<Step<AttentionGradient>> attention_gradient_steps() {
  return {{"matrices in memory", run_naive_gradient}, {"weights computed again, in tiles", run_tiled_gradient}};
}

std::vector<Step<TopAttention>> top_attention_steps() {
  std::vector<Step<TopAttention>> steps{{"a warp a query", run_warps},
                                        {"a block a cluster", run_clusters<block_a_cluster, threads, 0>}};
  if (has_mma())
    steps.push_back(
        {"tensor cores", run_clusters<cluster_on_tensor_cores, mma_threads, top_rows * D * sizeof(bfloat16)>, true});
  return steps;
}

}  // namespace cairn::ladder
