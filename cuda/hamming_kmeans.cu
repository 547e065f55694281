// K-means of binary codes under the Hamming distance (the paper's section 3.2.2, step 2): Lloyd's algorithm, started
// from one query of each of C strata. core/kernels/hamming_kmeans.h has the definition. The labels equal the CPU's bit
// for bit, because threads add up integers only.
//
// Shapes. A row is one (batch element, head): N codes of which the first n = lengths[b] are valid. R = B * H rows.
//   codes [R, N], labels [R, N], centroids [R, C]
//   totals [R, C, 32]  how many members of a cluster have each bit: word w counts bits w and w + 32
//   members [R, C]     how many members a cluster has
//
// An iteration has three steps.
//   assign   centroids are in shared memory, up to 256 at a time; a thread finds the nearest one of its query
//   count    a block counts members and their bits in shared memory
//   vote     a warp takes a cluster: it adds up the counts of all blocks of the row and votes the new centroid
// A last assignment follows. (Ending early when no label changes is not exact: ties draw new bits in each iteration.)
//
// Launch. There are two forms; they differ in how the blocks of a row exchange their counts.
//
//   kmeans_rows    One launch. A block cluster of 1, 2, 4 or 8 blocks takes a row and keeps its counters and centroids
//                  in shared memory from the first iteration to the last. The blocks wait for one another, read each
//                  other's counters and write the new centroids to all blocks.
//   kmeans_assign, kmeans_vote   Two launches an iteration. Counters and centroids go through global memory. For more
//                  than 256 clusters, and for few long rows, which need more blocks than a block cluster has.
//
// Distances are products on tensor cores, if the GPU has them. A bit becomes a byte, 64 or -64, so the product of two
// codes is 2^13 (32 - distance). For centroid c of the tile 2^13 - 1 - c is added: the largest score is that of the
// nearest centroid, and of the lowest one on a tie. On other GPUs a thread computes the same scores by population
// counts.
//
// Bits are counted by atomics in shared memory. A query takes 32 of them; each word counts two bits. (A count is below
// 2^16, because a block has fewer queries.) The lanes of a warp add to 32 different banks. Counting by a product of the
// members' bits with the membership matrix would double the work of the tensor cores.
//
// Traffic of an iteration: 8 bytes a code, the floor, from the L2 cache. kmeans_rows moves 132 C bytes from each block
// of a row to another, and 64 C bytes back. kmeans_assign also reads codes and labels a second time, and adds up to 260
// C bytes a block to the totals, which kmeans_vote reads and clears.
//
// Bound. With tensor cores an assignment is R N C / 64 products of 16 x 8 x 32: at least 2.2 us at R = 24, N = 4096, C
// = 100, on 132 multiprocessors. Without tensor cores it takes 2 R N C population counts, 16 a clock and
// multiprocessor: at least 5.3 us.
#include "cuda/hamming_kmeans.h"

#include <algorithm>
#include <climits>

#include "core/kernels/memory.h"
#include "core/workspace.h"
#include "cuda/block_cluster.cuh"
#include "cuda/common.cuh"
#include "cuda/mma.cuh"

namespace cairn::gpu {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / 32;
constexpr int max_tile = 256;                 // so that counters take 33 KB of shared memory
constexpr int words = 32;                     // of the counters of a cluster, two bits each
constexpr int low_bits = 8191;                // the lowest 13 bits of a score: this minus the centroid's number
constexpr int64_t max_count = (1 << 16) - 1;  // of a counter in shared memory

using Pair = unsigned long long;  // two counts of 32 bits, which one atomic adds to

struct Problem {
  KMeansSize size;
  const uint64_t* codes = nullptr;
  const int32_t* lengths = nullptr;
  Draw draw;
  int64_t chunk = 0;           // queries of a block
  int64_t chunks_per_row = 0;  // blocks of a row
  int tile = 0;                // centroids in shared memory at a time, a multiple of 8
  int32_t* labels = nullptr;
  // of kmeans_assign and kmeans_vote
  uint64_t* centroids = nullptr;
  Pair* totals = nullptr;
  uint32_t* members = nullptr;
};

// A row, in one iteration.
struct Row {
  const Problem& p;
  int64_t number, n;  // valid queries
  int iteration;      // from 1

  __device__ Row(const Problem& problem, int64_t row, int now)
      : p(problem),
        number(row),
        n(problem.lengths ? clamped(problem.lengths[uint32_t(row) / uint32_t(problem.size.H)]) : problem.size.N),
        iteration(now) {}

  // Nobody has checked lengths on the device.
  __device__ int64_t clamped(int64_t length) const { return min(max(length, int64_t{0}), p.size.N); }
  __device__ int64_t head() const { return uint32_t(number) % uint32_t(p.size.H); }
  __device__ uint64_t code(int64_t query) const { return p.codes[number * p.size.N + query]; }
  __device__ int32_t& label(int64_t query) const { return p.labels[number * p.size.N + query]; }
  __device__ int64_t cluster(int64_t c) const { return number * p.size.C + c; }
  __device__ uint64_t drawn(int64_t c, int t) const {
    return code(draw_query(p.draw.key(), head(), c, p.size.C, n, t));
  }
  // Labels the queries [begin, end) that need no centroid. Returns whether these are all queries of the row.
  __device__ bool label_without_centroids(int64_t begin, int64_t end) const {
    const bool own_clusters = p.size.C >= n;
    for (int64_t query = begin + threadIdx.x; query < end; query += block_threads)
      if (query >= n || own_clusters) label(query) = query >= n ? -1 : int32_t(query);
    return own_clusters;
  }
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

// A centroid in shared memory. Its parts are uint4 for tensor cores, one for each t, or a single uint64_t.
template <class Part>
constexpr int parts = sizeof(Part) == 16 ? 4 : 1;
template <class Part>
__device__ void store_part(uint64_t code, int t, Part* to) {
  if constexpr (sizeof(Part) == 16)
    *to = signs_of(code, t);
  else
    *to = code;
}

// The score of the nearest centroid of a tile: 2^13 (32 - distance) + 2^13 - 1 - centroid. On tensor cores, for the 32
// queries of a warp. centroids [tile, 4] are bytes of 64 and -64. Row g + 8 t of the product is the query of lane
// 4 g + t. So four neighboring lanes have scores of their four queries, and each lane ends with its own query.
__device__ int nearest(uint64_t code, const uint4* centroids, int tile) {
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
    int score[2][4] = {};
    for (int m = 0; m < 2; ++m) mma_s8(score[m], a[m][0], b.x, b.y);
    for (int m = 0; m < 2; ++m) mma_s8(score[m], a[m][1], b.z, b.w);
    // (Added here, and not as the sums' first value, because Hopper adds and compares in one instruction.)
    for (int k = 0; k < 4; ++k)
      for (int i = 0; i < 2; ++i) best[k] = max(best[k], score[k / 2][k % 2 * 2 + i] + low - i);
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
__device__ int nearest(uint64_t code, const uint64_t* centroids, int tile) {
  int best = INT_MIN;
  for (int c = 0; c < tile; ++c) best = max(best, ((32 - __popcll(code ^ centroids[c])) << 13) + low_bits - c);
  return best;
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

// ---- vote

// A bit of a new centroid: the strict majority of its members'.
__device__ bool voted_bit(uint32_t have, uint32_t members, bool tie) {
  const uint32_t have_not = members - have;
  return have > have_not || (have == have_not && tie);
}

// The new centroid of cluster c, of which have_low and have_high members have the bits `lane` and 32 + `lane`.
__device__ uint64_t voted(const Row& row, int64_t c, uint32_t have_low, uint32_t have_high, uint32_t members) {
  const int lane = int(threadIdx.x % 32);
  const uint64_t ties = draw_ties(row.p.draw.key(), row.head(), c, row.iteration);
  const uint32_t low = __ballot_sync(full_warp, voted_bit(have_low, members, ties >> lane & 1));
  const uint32_t high = __ballot_sync(full_warp, voted_bit(have_high, members, ties >> (32 + lane) & 1));
  return members == 0 ? row.drawn(c, row.iteration) : uint64_t(high) << 32 | low;
}

// ---- a block cluster for each row

template <int blocks, class Part>
__global__ void __launch_bounds__(block_threads, 3) kmeans_rows(const Problem p) {
  wait_for_earlier_launches();
  const int rank = int(blockIdx.x % blocks), lane = int(threadIdx.x % 32), C = int(p.size.C);
  Part* const centroids = dynamic_shared<Part>();                                            // [tile, parts]
  uint32_t* const counters = reinterpret_cast<uint32_t*>(centroids + parts<Part> * p.tile);  // [tile, words]
  uint32_t* const members = counters + p.tile * words;                                       // [tile]
  Row row(p, blockIdx.x / blocks, 1);
  const int64_t begin = rank * p.chunk, end = min(begin + p.chunk, p.size.N), valid_end = min(end, row.n);
  if (row.label_without_centroids(begin, end)) return;  // all blocks of the row return

  for (int c = int(threadIdx.x); c < p.tile; c += block_threads) {
    const uint64_t code = row.drawn(min(c, C - 1), 0);  // places after the last centroid get copies of it
    for (int t = 0; t < parts<Part>; ++t) store_part(code, t, centroids + parts<Part> * c + t);
  }
  for (;; ++row.iteration) {
    const bool last = row.iteration > p.size.iterations;
    for (int i = int(threadIdx.x); i < p.tile * (words + 1); i += block_threads) counters[i] = 0;
    __syncthreads();
    for (int64_t first = begin; first < valid_end; first += block_threads) {
      const int64_t query = first + threadIdx.x;
      const uint64_t code = query < valid_end ? row.code(query) : 0;  // all threads multiply
      const int label = low_bits - (nearest(code, centroids, p.tile) & low_bits);
      if (query >= valid_end) continue;
      if (last) {
        row.label(query) = label;
      } else {
        atomicAdd(members + label, 1u);
        add_bits(counters + label * words, code);
      }
    }
    if (last) return;
    block_cluster_barrier<blocks>();  // all blocks have counted, and have read the centroids
    for (int place = int(threadIdx.x / 32) * blocks + rank; place < p.tile; place += blocks * block_warps) {
      const int c = min(place, C - 1);
      uint32_t have_low = 0, have_high = 0;
#pragma unroll
      for (int block = 0; block < blocks; ++block) {
        const uint32_t two = *in_block<blocks>(block, counters + c * words + lane);
        have_low += two & 0xffffu, have_high += two >> 16;
      }
      const int all = warp_sum(lane < blocks ? int(*in_block<blocks>(lane, members + c)) : 0);
      const uint64_t centroid = voted(row, c, have_low, have_high, uint32_t(all));
      for (int i = lane; i < parts<Part> * blocks; i += 32) {
        const int t = i % parts<Part>;
        store_part(centroid, t, in_block<blocks>(i / parts<Part>, centroids + parts<Part> * place + t));
      }
    }
    block_cluster_barrier<blocks>();  // all blocks have the new centroids, and nobody reads the counters any more
  }
}

// ---- two launches for each iteration

// Loads the centroids first .. first + tile - 1. Places after the last centroid get copies of it, which have lower
// scores.
template <class Part>
__device__ void load_centroids(const Row& row, int64_t first) {
  __syncthreads();  // no thread reads the previous centroids any more
  for (int i = int(threadIdx.x); i < row.p.tile; i += block_threads) {
    const int64_t c = min(first + i, row.p.size.C - 1);
    const uint64_t code = row.iteration == 1 ? row.drawn(c, 0) : row.p.centroids[row.cluster(c)];
    for (int t = 0; t < parts<Part>; ++t) store_part(code, t, dynamic_shared<Part>() + parts<Part> * i + t);
  }
  __syncthreads();
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

// Assigns and counts. A block takes a (row, chunk). The launch after the last iteration only assigns.
template <class Part>
__global__ void __launch_bounds__(block_threads) kmeans_assign(const Problem p, int iteration) {
  const Row row(p, blockIdx.x / p.chunks_per_row, iteration);
  const int64_t begin = blockIdx.x % p.chunks_per_row * p.chunk, end = min(begin + p.chunk, p.size.N);
  if (row.label_without_centroids(begin, end)) return;
  const int64_t valid_end = min(end, row.n), C = p.size.C;
  for (int64_t first_query = begin; first_query < valid_end; first_query += block_threads) {
    const int64_t query = first_query + threadIdx.x;
    const uint64_t code = query < valid_end ? row.code(query) : 0;  // all threads load, and multiply
    int closeness = INT_MIN;
    int64_t label = 0;
    for (int64_t first = 0; first < C; first += p.tile) {
      if (first_query == begin || C > p.tile) load_centroids<Part>(row, first);
      const int score = nearest(code, dynamic_shared<Part>(), p.tile);
      if (score >> 13 <= closeness) continue;  // a tie is for the lower centroid
      closeness = score >> 13;
      label = first + low_bits - (score & low_bits);
    }
    if (query < valid_end) row.label(query) = int32_t(label);
  }
  if (iteration <= p.size.iterations) count(row, begin, valid_end);
}

// The new centroids; totals become 0. A warp takes a cluster of a row.
__global__ void __launch_bounds__(block_threads) kmeans_vote(const Problem p, int iteration) {
  const int lane = int(threadIdx.x % 32);
  const int64_t cluster = int64_t(blockIdx.x) * block_warps + threadIdx.x / 32, C = p.size.C;
  if (cluster >= p.size.B * p.size.H * C) return;
  const Row row(p, cluster / C, iteration);
  if (row.n <= C) return;
  const Pair two = p.totals[cluster * words + lane];
  const uint32_t members = p.members[cluster];
  const uint64_t centroid = voted(row, cluster % C, uint32_t(two), uint32_t(two >> 32), members);
  p.totals[cluster * words + lane] = 0;
  if (lane != 0) return;
  p.centroids[cluster] = centroid;
  p.members[cluster] = 0;
}

// ---- the host's part

// The queries of a chunk, if the GPU runs `wave` blocks at once. All blocks fit into one wave, because a few more
// blocks would double the time. If even one block for each row is too many, chunks of 2048 queries keep the last wave
// short. Results do not depend on the chunks.
constexpr int64_t chunk_of(int64_t rows, int64_t N, int64_t wave) {
  constexpr int64_t most = max_count / block_threads;
  const int64_t rounds = ceil_div(N, block_threads);  // in each, a thread takes a query
  return block_threads * std::min(most, rows <= wave ? ceil_div(rounds, wave / rows) : 8);
}
static_assert(chunk_of(24, 4096, 264) == 512);        // 192 blocks; chunks of 256 would make 384
static_assert(chunk_of(24, 4096, 792) == 256);        // 384 blocks
static_assert(chunk_of(1, 1 << 20, 8) == 255 * 256);  // more than a wave, because a chunk has a limit
static_assert(chunk_of(512, 4096, 264) == 2048);      // 1024 blocks in any case

// The blocks of a row that takes one launch; 0 if it takes two for each iteration.
int row_blocks_of(const KMeansSize& size) {
  const int64_t rows = size.B * size.H, most = has_block_clusters() ? 8 : 1;
  if (size.C > max_tile || size.N > most * max_count) return 0;
  int64_t blocks = 1;
  while (blocks < most && (rows * blocks < 2 * multiprocessors() || size.N > blocks * max_count)) blocks *= 2;
  // Few long rows are faster if all multiprocessors share them.
  return rows * blocks < multiprocessors() && size.N > 2048 * blocks ? 0 : int(blocks);
}

template <int blocks>
void run_rows(Stream stream, Problem p) {
  p.chunk = ceil_div(p.size.N, blocks);
  const auto run = [&]<class Part>(Part) {
    const size_t shared = size_t(p.tile) * (parts<Part> * sizeof(Part) + (words + 1) * sizeof(uint32_t));
    Launch shape{p.size.B * p.size.H * blocks, block_threads, shared, stream};
    shape.block_cluster = blocks;
    launch(kmeans_rows<blocks, Part>, overlapped(shape), p);
  };
  if constexpr (blocks == 1)
    if (!has_mma()) return run(uint64_t{});
  run(uint4{});
}

template <class Part>
void run_iterations(Stream stream, Problem p) {
  Workspace workspace(Device::cuda);
  const int64_t rows = p.size.B * p.size.H, clusters = rows * p.size.C;
  const size_t shared = size_t(p.tile) * (words + 1) * sizeof(uint32_t);  // counters; centroids take less
  int blocks = 0;                                                         // of a multiprocessor
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kmeans_assign<Part>, block_threads, shared));
  p.chunk = chunk_of(rows, p.size.N, int64_t{blocks} * multiprocessors());
  p.chunks_per_row = ceil_div(p.size.N, p.chunk);
  p.centroids = workspace.take<uint64_t>(clusters);
  p.totals = workspace.take<Pair>(clusters * words);
  p.members = workspace.take<uint32_t>(clusters);
  set_bytes(stream, p.totals, 0, size_t(clusters) * words * sizeof(Pair));
  set_bytes(stream, p.members, 0, size_t(clusters) * sizeof(uint32_t));
  for (int iteration = 1; iteration <= p.size.iterations + 1; ++iteration) {
    launch(kmeans_assign<Part>, {rows * p.chunks_per_row, block_threads, shared, stream}, p, iteration);
    if (iteration <= p.size.iterations)
      launch(kmeans_vote, {ceil_div(clusters, block_warps), block_threads, 0, stream}, p, iteration);
  }
}

}  // namespace

bool hamming_kmeans_with(int row_blocks, Stream stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths,
                         Draw draw, int32_t* labels) {
  if (size.B * size.H * size.N == 0) return true;
  if (row_blocks > 1 && !has_block_clusters()) return false;
  Problem p{size, codes, lengths, draw};
  p.labels = labels;
  p.tile = int(8 * ceil_div(size.C, 8 * ceil_div(size.C, max_tile)));
  if (row_blocks == 1)
    run_rows<1>(stream, p);
  else if (row_blocks == 2)
    run_rows<2>(stream, p);
  else if (row_blocks == 4)
    run_rows<4>(stream, p);
  else if (row_blocks == 8)
    run_rows<8>(stream, p);
  else
    has_mma() ? run_iterations<uint4>(stream, p) : run_iterations<uint64_t>(stream, p);
  return true;
}

void hamming_kmeans(Stream stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths, Draw draw,
                    int32_t* labels) {
  hamming_kmeans_with(row_blocks_of(size), stream, size, codes, lengths, draw, labels);
}

}  // namespace cairn::gpu
