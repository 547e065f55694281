// Attention, out = softmax(Q K^T / 8) V, for heads of N queries, keys and values of D = 64 bfloat16 numbers, in four
// steps. out is float32. N is a multiple of 64, so that all tiles are whole.
//
// A head has 8 N D bytes of operands and needs two products of N^2 D multiply-adds each, so arithmetic should be the
// bound. But the N x N matrix between the products costs memory traffic. For one head with N = 4096 on an H100, a
// product takes 36 us on FP32 units (128 multiply-adds a clock and multiprocessor) and 7 us on tensor cores. The matrix
// in float32 has 67 MB; to write or to read it takes 22 us. The library's kernels are in cuda/attention.cu.
#include <cmath>

#include "core/workspace.h"
#include "cuda/attention_mma.cuh"
#include "cuda/ladder/ladder.h"

namespace cairn::ladder {
namespace {

using namespace gpu;
using Elements = const bfloat16*;

constexpr int D = head_size, side = D, threads = 256;
constexpr float scale = 0.125f;            // 1 / sqrt(D)
constexpr float scale_2 = scale * log2_e;  // of scores whose exponentials are powers of 2

// ---- 1. The formula as it stands: a thread computes an element of the matrix, then softmax over rows, then a thread
// computes an element of out. Cost: neighboring lanes read rows of K that are 128 bytes apart, so each load touches 32
// lines of the L1 cache and takes 32 clocks. 33 million such loads take 4.8 ms. The second product has two loads for
// each multiply-add, 0.3 ms. The matrix is written, read, written and read: 0.1 ms.
__global__ void __launch_bounds__(threads) thread_a_score(Heads size, Elements q, Elements k, float* scores) {
  const int64_t element = int64_t(blockIdx.x) * threads + threadIdx.x, row = element / size.N;
  const int64_t key = row / size.N * size.N + element % size.N;  // of the same head
  float sum = 0;
  for (int d = 0; d < D; ++d) sum += float(q[row * D + d]) * float(k[key * D + d]);
  scores[element] = scale * sum;
}

__global__ void __launch_bounds__(threads) thread_a_sum(Heads size, const float* weights, Elements v, float* out) {
  const int64_t element = int64_t(blockIdx.x) * threads + threadIdx.x, row = element / D;
  const int64_t first = row / size.N * size.N;  // key of the head
  float sum = 0;
  for (int64_t j = 0; j < size.N; ++j) sum += weights[row * size.N + j] * float(v[(first + j) * D + element % D]);
  out[element] = sum;
}

// ---- Tiles of 64 x 64 floats in shared memory. Rows are a word longer, so that neighboring rows lie in different
// banks. A thread has 4 x 4 elements of a product: rows y + 16 r and columns x + 16 c.
using Tile = float[side][side + 1];
using Mine = float[4][4];
__device__ int row_of(int r) { return int(threadIdx.x / 16) + 16 * r; }
__device__ int column_of(int c) { return int(threadIdx.x % 16) + 16 * c; }

// Loads the tile at x; its rows are `stride` apart.
template <class T>
__device__ void load(const T* x, int64_t stride, Tile& tile) {
  for (int i = int(threadIdx.x); i < side * side; i += threads)
    tile[i / side][i % side] = float(x[i / side * stride + i % side]);
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

// Stores `factor` times the sums as the tile at x; its rows are `stride` apart.
__device__ void store(const Mine& sums, float factor, int64_t stride, float* x) {
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) x[row_of(r) * stride + column_of(c)] = factor * sums[r][c];
}

// ---- 2. Both products in tiles. Loads from memory are coalesced. A warp's load from shared memory takes a clock, so 8
// loads for 16 multiply-adds make 72 us a product, twice the floor. Expected: 145 us and 90 us for the matrix instead
// of 5.2 ms, 20 times as fast.
__global__ void __launch_bounds__(threads) tiled_scores(Heads size, Elements q, Elements k, float* scores) {
  __shared__ Tile of_q, of_k;
  const int64_t j0 = int64_t(blockIdx.x) * side, i0 = int64_t(blockIdx.y) * side, first = int64_t(blockIdx.z) * size.N;
  load(q + (first + i0) * D, D, of_q);
  load(k + (first + j0) * D, D, of_k);
  __syncthreads();
  Mine s = {};
  multiply<true>(of_q, of_k, s);
  store(s, scale, size.N, scores + (first + i0) * size.N + j0);
}

__global__ void __launch_bounds__(threads) tiled_output(Heads size, const float* weights, Elements v, float* out) {
  __shared__ Tile of_weights, of_v;
  const int64_t i0 = int64_t(blockIdx.x) * side, first = int64_t(blockIdx.y) * size.N;
  Mine sums = {};
  for (int64_t j0 = 0; j0 < size.N; j0 += side) {
    load(weights + (first + i0) * size.N + j0, size.N, of_weights);
    load(v + (first + j0) * D, D, of_v);
    __syncthreads();
    multiply<false>(of_weights, of_v, sums);
    __syncthreads();  // before the tiles are written again
  }
  store(sums, 1, D, out + (first + i0) * D);
}

// ---- 3. No matrix. A block goes through the keys with 64 queries. It keeps the running maximum of each query, and
// sums relative to it. A larger score scales the sums down (RunningSoftmax in cuda/attention_tiles.cuh; Dao et al.
// 2022). Weights never leave shared memory. K and V are read again for every 64 queries, 67 MB a head, but from the L2
// cache. Expected: 160 us instead of 235, 1.5 times as fast. The products take 145 us of it.
__global__ void __launch_bounds__(threads) online(Heads size, Elements q, Elements k, Elements v, float* out) {
  Tile* const tiles = dynamic_shared<Tile>();
  Tile &of_q = tiles[0], &of_k_or_v = tiles[1], &weights = tiles[2];
  const int64_t i0 = int64_t(blockIdx.x) * side, first = int64_t(blockIdx.y) * size.N;
  Mine sums = {};
  RunningSoftmax<4, 16> softmax;  // of this thread's four rows; 16 lanes share a row
  load(q + (first + i0) * D, D, of_q);
  for (int64_t j0 = 0; j0 < size.N; j0 += side) {
    load(k + (first + j0) * D, D, of_k_or_v);
    __syncthreads();
    Mine s = {};
    multiply<true>(of_q, of_k_or_v, s);
    for (int r = 0; r < 4; ++r) {
      float largest = -INFINITY;
      for (const float score : s[r]) largest = fmaxf(largest, score);
      const float correction = softmax.raise(r, scale_2 * largest);
      for (int c = 0; c < 4; ++c) {
        sums[r][c] *= correction;
        weights[row_of(r)][column_of(c)] = softmax.weight(r, s[r][c], scale_2);
      }
    }
    __syncthreads();  // before V overwrites K
    load(v + (first + j0) * D, D, of_k_or_v);
    __syncthreads();
    multiply<false>(weights, of_k_or_v, sums);
    __syncthreads();
  }
  softmax.finish();
  for (int r = 0; r < 4; ++r)
    for (float& sum : sums[r]) sum *= softmax.inverse(r);
  store(sums, 1, D, out + (first + i0) * D);
}

// ---- 4. Tensor cores. A warp takes 16 queries. mma.sync gives each lane scores of two rows, g and g + 8
// (cuda/mma.cuh); four lanes share a row. The lanes turn scores into weights in registers, as bfloat16, in the layout
// that the second product needs. The products would take 14 us. But for 64 keys a warp issued a thousand instructions,
// and only 64 of them were mma.sync: 18 us for all. Expected: 25 us instead of 160, 6 times as fast. (Now nvcc makes
// 336 instructions: cuda/sass.tsv.)
__global__ void __launch_bounds__(mma_threads)
    on_tensor_cores(Heads size, Elements q, Elements k, Elements v, float* out) {
  const MmaTile<bfloat16, D> of_q{dynamic_shared<bfloat16>()}, of_k = of_q.row(side), of_v = of_k.row(side);
  const int64_t i0 = int64_t(blockIdx.x) * side, first = int64_t(blockIdx.y) * size.N;
  const int warp_row = int(threadIdx.x / 32) * 16;
  float sums[D / 8][4] = {};
  WarpTileSoftmax softmax;
  of_q.copy<side>(q + (first + i0) * D, D, side, D);
  for (int64_t j0 = 0; j0 < size.N; j0 += side) {
    of_k.copy<side>(k + (first + j0) * D, D, side, D);
    of_v.copy<side>(v + (first + j0) * D, D, side, D);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    float s[side / 8][4], correction[2];
    mma_row_products(of_q.row(warp_row), of_k, one_strip(s));
    raise(softmax, s, scale_2, correction);
    // Of four elements e, those with e < 2 are in row g, the others in row g + 8; e / 2 is bit / 2 % 2.
    each_sum(sums, [&](float& sum, int bit) { sum *= correction[bit / 2 % 2]; });
    each_sum(s, [&](float& x, int bit) { x = softmax.weight(bit / 2 % 2, x, scale_2); });
    mma_weighted_rows(one_strip(s), of_v, one_strip(sums));
    __syncthreads();  // before the tiles are written again
  }
  softmax.finish();
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first + i0 + warp_row + mma_g() + 8 * half;
    write_sums(sums, half, softmax.inverse(half), out + row * D, D);
  }
}

// ---- the launches

// `scores` fills the matrix, and `output` computes out from its softmax.
template <auto scores, auto output>
void run_with_matrix(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out, Grid of_scores,
                     Grid of_output) {
  Workspace workspace(Device::cuda);
  float* const matrix = workspace.take<float>(int64_t(size.heads) * size.N * size.N);
  launch(scores, {of_scores, threads, 0, stream}, size, q, k, matrix);
  softmax_forward<float>(stream, {int64_t(size.heads) * size.N, size.N}, matrix, matrix);
  launch(output, {of_output, threads, 0, stream}, size, matrix, v, out);
}
void run_naive(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  const int64_t rows = int64_t(size.heads) * size.N;
  run_with_matrix<thread_a_score, thread_a_sum>(stream, size, q, k, v, out, rows * size.N / threads,
                                                rows * D / threads);
}
void run_tiled(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  const int64_t tiles = size.N / side;
  run_with_matrix<tiled_scores, tiled_output>(stream, size, q, k, v, out, {tiles, tiles, size.heads},
                                              {tiles, size.heads});
}
template <auto kernel, int threads_a_block, size_t shared>
void run(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  launch<kernel, shared>({{size.N / side, size.heads}, threads_a_block, 0, stream}, size, q, k, v, out);
}

}  // namespace

std::vector<Step<Attention>> attention_steps() {
  std::vector<Step<Attention>> steps{{"the matrix in memory", run_naive},
                                     {"tiles in shared memory", run_tiled},
                                     {"online softmax, no matrix", run<online, threads, 3 * sizeof(Tile)>}};
  if (has_mma())
    steps.push_back({"tensor cores", run<on_tensor_cores, mma_threads, 3 * side * D * sizeof(bfloat16)>, true});
  return steps;
}

}  // namespace cairn::ladder
