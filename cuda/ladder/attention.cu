// Attention, out = softmax(Q K^T / 8) V, for heads of N queries, keys and values of D = 64 bfloat16 numbers, in four
// steps. out is float32.
//
// A head has 8 N D bytes of operands and needs two products of N^2 D multiply-adds each, so arithmetic should be the
// bound. What stands in the way is the N x N matrix between the products. For one head with N = 4096 on an H100: a
// product takes 36 us on FP32 units (128 multiply-adds a clock and multiprocessor) and 7 us on tensor cores. The matrix
// in float32 is 67 MB; to write or to read it takes 22 us. cuda/attention.cu is the library's.
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

__global__ void __launch_bounds__(threads) thread_a_sum(Heads size, const float* weights, Elements v, float* out) {
  const int64_t row = int64_t(blockIdx.x) * (threads / D) + threadIdx.x / D, head = row / size.N;
  if (head >= size.heads) return;
  const int c = int(threadIdx.x % D);
  float sum = 0;
  for (int64_t j = 0; j < size.N; ++j) sum += weights[row * size.N + j] * float(v[(head * size.N + j) * D + c]);
  out[row * D + c] = sum;
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
// so that 8 loads for 16 multiply-adds make 72 us a product, twice the floor. Expected:
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

__global__ void __launch_bounds__(mma_threads)
    on_tensor_cores(Heads size, Elements q, Elements k, Elements v, float* out) {
  const HalfTile of_q{dynamic_shared<bfloat16>()}, of_k = of_q.row(side), of_v = of_k.row(side);
  const int i0 = int(blockIdx.x) * side, strip = int(threadIdx.x / 32) * 16;
  const int64_t start = int64_t(blockIdx.y) * size.N * D;
  float sums[1][D / 8][4] = {};
  FragmentSoftmax softmax;
  of_q.copy<side>(q + start + int64_t(i0) * D, D, size.N - i0, D);
  for (int j0 = 0; j0 < size.N; j0 += side) {
    of_k.copy<side>(k + start + int64_t(j0) * D, D, size.N - j0, D);
    of_v.copy<side>(v + start + int64_t(j0) * D, D, size.N - j0, D);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    float s[1][side / 8][4];
    mma_row_products<1, side>([&](int, int step, uint32_t(&a)[4]) { of_q.row(strip).load_a(step, a); }, of_k, s);
    softmax(s[0], size.N - j0, sums[0]);
    mma_weighted_rows<1, side>(s, of_v, sums);
    __syncthreads();  // the tiles are written again
  }
  for (int half = 0; half < 2; ++half) {
    const int i = i0 + strip + mma_g() + 8 * half;
    const float total = reduce<4>(softmax.sum[half], Sum{});
    if (i < size.N) write_sums(sums[0], half, 1 / total, out + start + int64_t(i) * D, D);
  }
}

// ---- The launches

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

void run_naive(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  const Launch of_matrix{{ceil_div(size.N, threads), size.N, size.heads}, threads, 0, stream};
  const Launch of_out{ceil_div(int64_t(size.heads) * size.N, threads / D), threads, 0, stream};
  run_with_matrix(
      stream, size, [&](float* matrix) { launch(thread_a_score, of_matrix, size, q, k, matrix); },
      [&](float* matrix) { launch(thread_a_sum, of_out, size, matrix, v, out); });
}
void run_tiled(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  const Launch of_matrix{{tiles_of(size), tiles_of(size), size.heads}, threads, 0, stream};
  const Launch of_out{{tiles_of(size), size.heads}, threads, 0, stream};
  run_with_matrix(
      stream, size, [&](float* matrix) { launch(tiled_scores, of_matrix, size, q, k, matrix); },
      [&](float* matrix) { launch(tiled_output, of_out, size, matrix, v, out); });
}
template <auto kernel, int threads_a_block, size_t shared>
void run(Stream stream, Heads size, Elements q, Elements k, Elements v, float* out) {
  launch(kernel, {{tiles_of(size), size.heads}, threads_a_block, shared, stream}, size, q, k, v, out);
}

}  // namespace

std::vector<Step<Attention>> attention_steps() {
  std::vector<Step<Attention>> steps{{"the matrix in memory", run_naive},
                                     {"tiles in shared memory", run_tiled},
                                     {"online softmax, no matrix", run<online, threads, online_tiles * sizeof(Tile)>}};
  if (has_mma()) steps.push_back({"tensor cores", run<on_tensor_cores, mma_threads, 3 * half_tile>, true});
  return steps;
}

}  // namespace cairn::ladder
