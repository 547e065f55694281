// K-means of binary codes under the Hamming distance (the paper's section 3.2.2, step 2): Lloyd's algorithm, started
// from one query of each of C strata. core/kernels/hamming_kmeans.h has the definition. The labels equal the CPU's bit
// for bit, because threads add up integers only.
//
// Shapes. A row is one (batch element, head): N codes of which the first n = lengths[b] are valid. R = B * H rows.
//   codes [R, N], labels [R, N], centroids [R, C]
//   totals [R, C, 32]  how many members of a cluster have each bit: word w counts bits w and w + 32
//   members [R, C]     how many members a cluster has
//   arrived [R]        how many blocks of the row have added their counts
//
// Launch. One kernel, once for each iteration and once more for the final assignment. A block takes a chunk of a row's
// queries, a thread one query at a time. Chunks are as small as possible with all blocks on the GPU at once (chunk_of).
//
//   queries  |---- chunk 0 ----|---- chunk 1 ----|- chunk 2 -|
//   block           0                 1                2         assign, count; the last block to arrive votes
//
//   assign   centroids go through shared memory, up to 256 at a time; each thread keeps the nearest one of its query
//   count    the block counts members and their bits in shared memory, up to 256 clusters at a time, and adds counts
//            that are not 0 to the row's totals
//   vote     the last block of the row to arrive (last_of_row) sees all counts of the row. A warp takes a cluster: it
//            reads the totals, resets them to 0 for the next iteration, and votes the new centroid.
// The first iteration draws a centroid whenever it reads one.
//
// Distances are products on tensor cores, if the GPU has them. A bit becomes a byte, 64 or -64, so the product of two
// codes is 2^13 (32 - distance). The sum starts from 2^13 - 1 - c for centroid c of the tile: the largest score is that
// of the nearest centroid, and of the lowest one on a tie. On other GPUs a thread computes the same scores by
// popcounts.
//
// Bits are counted by atomics in shared memory. A query takes 32 of them; each word counts two bits. (A count is below
// 2^16, because a block has fewer queries.) The lanes of a warp add to 32 different banks. Counting by a product of the
// members' bits with the membership matrix would double the work of the tensor cores.
//
// Traffic of an iteration: 8 bytes a code, the floor, plus 8 for the second reading and 8 for writing and reading the
// label (mostly from the cache). A block reads 8 C bytes of centroids and adds up to 260 C bytes to the totals. The
// vote reads and clears the totals, 520 R C bytes. All of this stays in the L2 cache.
//
// Bound. With tensor cores an assignment is R N C / 64 products of 16 x 8 x 32: at least 2.2 us at R = 24, N = 4096, C
// = 100, on 132 multiprocessors. On an H200 (2026-11-27, commit 56511a9) an iteration took 18 us. The vote, a chain of
// C / 8 reads from L2 and random draws, takes 6 to 7 of them. Without tensor cores an assignment takes 2 R N C
// popcounts, 16 a clock and multiprocessor: at least 5.3 us.
#include "core/kernels/hamming_kmeans.h"

#include <algorithm>
#include <climits>

#include "core/kernels/memory.h"
#include "core/workspace.h"
#include "cuda/common.cuh"
#include "cuda/mma.cuh"

namespace cairn::gpu {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / 32;
constexpr int max_tile = 256;   // so that counters take 33 KB of shared memory
constexpr int words = 32;       // of the counters of a cluster, two bits each
constexpr int low_bits = 8191;  // the lowest 13 bits of a score: this minus the centroid's number

using Pair = unsigned long long;  // two counts of 32 bits, which one atomic adds to

struct Problem {
  KMeansSize size;
  const uint64_t* codes = nullptr;
  const int32_t* lengths = nullptr;
  Draw draw;
  int64_t chunk = 0;           // queries of a block
  int64_t chunks_per_row = 0;  // blocks of a row
  int tile = 0;                // centroids in shared memory at a time, a multiple of 8
  uint64_t* centroids = nullptr;
  Pair* totals = nullptr;
  uint32_t* members = nullptr;
  uint32_t* arrived = nullptr;
  int32_t* labels = nullptr;
};

// A row, in one iteration.
struct Row {
  const Problem& p;
  int64_t number, n;  // valid queries
  int iteration;      // from 1

  __device__ Row(const Problem& problem, int64_t row, int now)
      : p(problem),
        number(row),
        n(problem.lengths ? problem.lengths[uint32_t(row) / uint32_t(problem.size.H)] : problem.size.N),
        iteration(now) {}

  __device__ int64_t head() const { return uint32_t(number) % uint32_t(p.size.H); }
  __device__ uint64_t code(int64_t query) const { return p.codes[number * p.size.N + query]; }
  __device__ int32_t& label(int64_t query) const { return p.labels[number * p.size.N + query]; }
  __device__ int64_t cluster(int64_t c) const { return number * p.size.C + c; }
  __device__ uint64_t drawn(int64_t c, int t) const {
    return code(draw_query(p.draw.key(), head(), c, p.size.C, n, t));
  }
  // The centroid that this iteration assigns to.
  __device__ uint64_t centroid(int64_t c) const { return iteration == 1 ? drawn(c, 0) : p.centroids[cluster(c)]; }
};

// ---- assign

// Bits i, i + 8, i + 16, i + 24 of a word as four bytes, i < 8: 64 if the bit is set, -64 if not.
__device__ uint32_t signs_of(uint32_t word, int i) { return ((word << (7 - i)) & 0x80808080u) ^ 0xc0c0c0c0u; }
// The bits of a code that lane 4 g + t holds in fragments of mma_s8: bits 4 (t % 2) .. 4 (t % 2) + 3 of each byte of
// word t / 2. (The bits may be in any order that is the same for queries and centroids.)
__device__ uint4 signs_of(uint64_t code, int t) {
  const uint32_t word = uint32_t(code >> 32 * (t / 2));
  const int first = 4 * (t % 2);
  return {signs_of(word, first), signs_of(word, first + 1), signs_of(word, first + 2), signs_of(word, first + 3)};
}

// The score of the nearest centroid of a tile: 2^13 (32 - distance) + 2^13 - 1 - centroid. On tensor cores, for the 32
// queries of a warp. centroids [tile, 4] are bytes of 64 and -64. Row g + 8 t of the product is the query of lane
// 4 g + t. So four neighboring lanes have scores of their four queries, and each lane ends with its own query.
__device__ int nearest_by_mma(uint64_t code, const uint4* centroids, int tile) {
  const int lane = int(threadIdx.x % 32), t = lane % 4;
  uint32_t a[2][2][4];  // of 16 queries and 32 bits each
  for (int m = 0; m < 2; ++m) {
    const uint4 low = signs_of(__shfl_sync(full_warp, code, 2 * m, 4), t);
    const uint4 high = signs_of(__shfl_sync(full_warp, code, 2 * m + 1, 4), t);
    const uint32_t fragments[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < 4; ++i) a[m][half][i] = fragments[half][i];
  }
  int best[4] = {INT_MIN, INT_MIN, INT_MIN, INT_MIN};
#pragma unroll 2
  for (int c = 0; c < tile; c += 8) {
    const uint4 b = centroids[4 * c + lane];
    const int low = low_bits - c - 2 * t;
    int score[2][4] = {{low, low - 1, low, low - 1}, {low, low - 1, low, low - 1}};
    for (int m = 0; m < 2; ++m) mma_s8(score[m], a[m][0], b.x, b.y);
    for (int m = 0; m < 2; ++m) mma_s8(score[m], a[m][1], b.z, b.w);
    for (int k = 0; k < 4; ++k) best[k] = max(best[k], max(score[k / 2][k % 2 * 2], score[k / 2][k % 2 * 2 + 1]));
  }
  // The four lanes have seen different centroids for the same four queries; each ends with one query.
  const bool upper = t >= 2, odd = t % 2 != 0;
  for (int i = 0; i < 2; ++i) {
    const int other = __shfl_xor_sync(full_warp, upper ? best[i] : best[2 + i], 2);
    best[i] = max(upper ? best[2 + i] : best[i], other);
  }
  const int other = __shfl_xor_sync(full_warp, odd ? best[0] : best[1], 1);
  return max(odd ? best[1] : best[0], other);
}

// The same by popcounts, for one query.
__device__ int nearest_by_popcount(uint64_t code, const uint64_t* centroids, int tile) {
  int best = INT_MIN;
  for (int c = 0; c < tile; ++c) best = max(best, ((32 - __popcll(code ^ centroids[c])) << 13) + low_bits - c);
  return best;
}

// Loads centroids first .. first + tile - 1 into shared memory. Places after the last centroid get copies of it, which
// have lower scores.
template <bool tensor_cores>
__device__ void load_centroids(const Row& row, int64_t first) {
  __syncthreads();  // no thread reads the previous centroids any more
  for (int c = int(threadIdx.x); c < row.p.tile; c += block_threads) {
    const uint64_t code = row.centroid(min(first + c, row.p.size.C - 1));
    if constexpr (tensor_cores)
      for (int t = 0; t < 4; ++t) dynamic_shared<uint4>()[4 * c + t] = signs_of(code, t);
    else
      dynamic_shared<uint64_t>()[c] = code;
  }
  __syncthreads();
}

// Labels the queries [begin, end) of a row.
template <bool tensor_cores>
__device__ void assign(const Row& row, int64_t begin, int64_t end) {
  const int64_t C = row.p.size.C;
  for (int64_t first_query = begin; first_query < end; first_query += block_threads) {
    const int64_t query = first_query + threadIdx.x;
    const uint64_t code = query < end ? row.code(query) : 0;  // all threads load, and multiply
    int closeness = INT_MIN;
    int64_t label = 0;
    for (int64_t first = 0; first < C; first += row.p.tile) {
      if (first_query == begin || C > row.p.tile) load_centroids<tensor_cores>(row, first);
      int score;
      if constexpr (tensor_cores)
        score = nearest_by_mma(code, dynamic_shared<uint4>(), row.p.tile);
      else
        score = nearest_by_popcount(code, dynamic_shared<uint64_t>(), row.p.tile);
      if (score >> 13 <= closeness) continue;  // a tie is for the lower centroid
      closeness = score >> 13;
      label = first + low_bits - (score & low_bits);
    }
    if (query < end) row.label(query) = int32_t(label);
  }
}

// ---- count

// Adds the bits of a member to the counters of its cluster. At each step the lanes add to different words, and so in
// different banks, whatever their clusters are.
__device__ void add_bits(uint32_t* counters, uint64_t code) {
  const int lane = int(threadIdx.x % 32);
  const uint32_t low = uint32_t(code), high = uint32_t(code >> 32);
  // pairs[0] has bits 0..15 and 32..47, pairs[1] bits 16..31 and 48..63. Its bits i and 16 + i are counted in one word.
  const uint32_t pairs[2] = {(low & 0xffffu) | high << 16, low >> 16 | (high & 0xffff0000u)};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int upper = half ^ lane / 16;
    const uint32_t pair = upper ? pairs[1] : pairs[0];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int i = lane % 16 ^ j;
      atomicAdd(counters + 16 * upper + i, pair >> i & 0x00010001u);
    }
  }
}

// Adds the labeled queries [begin, end), as members and as bits, to the totals of the row. A thread counts the queries
// that it has labeled.
__device__ void count(const Row& row, int64_t begin, int64_t end) {
  const int tile = row.p.tile;
  uint32_t* const counters = dynamic_shared<uint32_t>();  // [tile, words]
  uint32_t* const members = counters + tile * words;      // [tile]
  for (int64_t first = 0; first < row.p.size.C; first += tile) {
    __syncthreads();  // no thread reads the previous contents any more
    for (int i = int(threadIdx.x); i < tile * (words + 1); i += block_threads) counters[i] = 0;
    __syncthreads();
    for (int64_t query = begin + threadIdx.x; query < end; query += block_threads) {
      const int64_t c = row.label(query) - first;
      if (c < 0 || c >= tile) continue;
      atomicAdd(members + c, 1u);
      add_bits(counters + c * words, row.code(query));
    }
    __syncthreads();
    for (int i = int(threadIdx.x); i < tile * words; i += block_threads)
      if (const uint32_t two = counters[i])
        atomicAdd(row.p.totals + row.cluster(first) * words + i, Pair(two >> 16) << 32 | (two & 0xffffu));
    for (int c = int(threadIdx.x); c < tile; c += block_threads)
      if (members[c] != 0) atomicAdd(row.p.members + row.cluster(first) + c, members[c]);
  }
}

// ---- vote

// Whether this block is the last of the row's `blocks` to arrive. Then it sees everything that they did before
// arriving.
__device__ bool last_of_row(const Row& row, int64_t blocks) {
  bool last = false;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* const arrived = row.p.arrived + row.number;
    __threadfence();  // orders the block's counts before its arrival
    last = atomicAdd(arrived, 1u) + 1 == blocks;
    __threadfence();  // orders the vote after the arrival of all blocks
    if (last) *arrived = 0;
  }
  return __syncthreads_or(last);
}

// A bit of a new centroid: the strict majority of its members'.
__device__ bool voted_bit(uint32_t have, uint32_t members, bool tie) {
  const uint32_t have_not = members - have;
  return have > have_not || (have == have_not && tie);
}

// The new centroids of a row; its totals become 0.
__device__ void vote(const Row& row) {
  const int lane = int(threadIdx.x % 32);
  for (int64_t c = threadIdx.x / 32; c < row.p.size.C; c += block_warps) {
    const Pair two = atomicExch(row.p.totals + row.cluster(c) * words + lane, Pair{0});
    uint32_t members = lane == 0 ? atomicExch(row.p.members + row.cluster(c), 0u) : 0;
    members = __shfl_sync(full_warp, members, 0);
    const uint64_t ties = draw_ties(row.p.draw.key(), row.head(), c, row.iteration);
    const uint32_t low = __ballot_sync(full_warp, voted_bit(uint32_t(two), members, ties >> lane & 1));
    const uint32_t high = __ballot_sync(full_warp, voted_bit(uint32_t(two >> 32), members, ties >> (32 + lane) & 1));
    const uint64_t centroid = members == 0 ? row.drawn(c, row.iteration) : uint64_t(high) << 32 | low;
    if (lane == 0) row.p.centroids[row.cluster(c)] = centroid;
  }
}

// One iteration, counted from 1. A block takes a (row, chunk). The launch after the last iteration only assigns.
template <bool tensor_cores>
__global__ void __launch_bounds__(block_threads) kmeans_iteration(const Problem p, int iteration) {
  const Row row(p, blockIdx.x / p.chunks_per_row, iteration);
  const int64_t begin = blockIdx.x % p.chunks_per_row * p.chunk, end = min(begin + p.chunk, p.size.N);
  const bool own_clusters = p.size.C >= row.n;
  for (int64_t query = begin + threadIdx.x; query < end; query += block_threads) {
    if (query >= row.n)
      row.label(query) = -1;
    else if (own_clusters)
      row.label(query) = int32_t(query);
  }
  if (own_clusters || begin >= row.n) return;

  const int64_t valid_end = min(end, row.n);
  assign<tensor_cores>(row, begin, valid_end);
  if (iteration > p.size.iterations) return;
  count(row, begin, valid_end);
  if (last_of_row(row, ceil_div(row.n, p.chunk))) vote(row);
}

// The queries of a chunk, if the GPU runs `wave` blocks at once. All blocks fit into one wave, because a few more
// blocks would double the time. If even one block for each row is too many, chunks of 2048 queries keep the last wave
// short. Results do not depend on the chunks.
constexpr int64_t chunk_of(int64_t rows, int64_t N, int64_t wave) {
  constexpr int64_t most = (1 << 16) / block_threads - 1;  // counts are below 2^16
  const int64_t rounds = ceil_div(N, block_threads);       // in each, a thread takes a query
  return block_threads * std::min(most, rows <= wave ? ceil_div(rounds, wave / rows) : 8);
}
static_assert(chunk_of(24, 4096, 264) == 512);        // 192 blocks; chunks of 256 would make 384
static_assert(chunk_of(24, 4096, 792) == 256);        // 384 blocks
static_assert(chunk_of(1, 1 << 20, 8) == 255 * 256);  // more than a wave, because a chunk has a limit
static_assert(chunk_of(512, 4096, 264) == 2048);      // 1024 blocks in any case

// The number of blocks that the GPU runs at once.
int64_t wave_of(void (*kernel)(Problem, int), size_t shared) {
  int device = 0, multiprocessors = 0, blocks = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block_threads, shared));
  return int64_t(multiprocessors) * blocks;
}

}  // namespace

void hamming_kmeans(Stream stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths, Draw draw,
                    int32_t* labels) {
  Workspace workspace(Device::cuda);
  const int64_t rows = size.B * size.H, clusters = rows * size.C;
  if (rows * size.N == 0) return;

  const int64_t tiles = ceil_div(size.C, max_tile);
  const int tile = int(8 * ceil_div(size.C, 8 * tiles));
  const size_t shared = size_t(tile) * (words + 1) * sizeof(uint32_t);  // counters; centroids take less
  const auto kernel = has_mma() ? kmeans_iteration<true> : kmeans_iteration<false>;
  const int64_t chunk = chunk_of(rows, size.N, wave_of(kernel, shared));

  Problem p{size, codes, lengths, draw, chunk, ceil_div(size.N, chunk), tile};
  p.centroids = workspace.take<uint64_t>(clusters);
  p.totals = workspace.take<Pair>(clusters * words);
  p.members = workspace.take<uint32_t>(clusters);
  p.arrived = workspace.take<uint32_t>(rows);
  p.labels = labels;
  set_bytes(stream, p.totals, 0, size_t(clusters) * words * sizeof(Pair));
  set_bytes(stream, p.members, 0, size_t(clusters) * sizeof(uint32_t));
  set_bytes(stream, p.arrived, 0, size_t(rows) * sizeof(uint32_t));

  for (int iteration = 1; iteration <= size.iterations + 1; ++iteration)
    launch(kernel, {rows * p.chunks_per_row, block_threads, shared, stream}, p, iteration);
}

}  // namespace cairn::gpu
