// K-means of binary codes under the Hamming distance (the paper's section 3.2.2, step 2): Lloyd's algorithm, started
// from one query of each of C strata. core/kernels/hamming_kmeans.h has the definition; the labels are the CPU's, bit
// for bit, because everything that threads add up is a whole number.
//
// Shapes. A row is one (batch element, head): N codes of which the first n = lengths[b] are valid. R = B * H rows.
//   codes [R, N], labels [R, N], centroids [R, C]
//   ones [R, C, stride]: how many members of a cluster have each bit; stride is `bits` rounded up to whole warps
//   members [R, C]
//
// Launch. Two kernels an iteration, over all rows; the host never waits.
//   assign_queries     a block takes up to 2048 queries of a row, 256 at a time, a thread one of them. They meet
//                      the centroids, 512 of them at a time in shared memory; then the block counts bits and
//                      members of its queries in shared memory, a tile of clusters after the other, and adds what
//                      is not 0 to `ones` and `members`.
//   update_centroids   a warp takes a cluster, a lane every 32nd bit; the warp votes the new code together. It leaves
//                      `ones` and `members` at 0 for the next iteration.
// Cost of an iteration. 2 R N C counts of 32 bits (16 a clock and multiprocessor): that bounds it. Memory: 8 bytes a
// code, the floor, plus 8 more for the second reading and 8 for writing and reading the label (from the cache, mostly);
// R C (4 stride + 12) bytes read and written for the counters, which stay in the L2 cache.
//
// cost assign_queries: 28*B*H*N bytes, 32*B*H*N*C FLOPs, C*65/256 KB shared (a popcount as 16: 16 a clock,
//    not 256)
// cost update_centroids: B*H*C*(4*64+12) bytes, B*H*C*64 FLOPs
//
// Loops of assign_queries: for 256 queries at a time and each tile of centroids, load the tile and compare with four
// centroids at a time; then for each tile of counters, clear it, count (without bits, with four bits at a time), and
// add the bits and the members to the totals.
// size piece: min(2048,max(256,2**int(log(B*H*N/1024,2))))
// trips assign_queries: B*H*ceil(N/piece) blocks, i+1 launches, loops piece/256 {1 {0 C/4}}
//     i/(i+1) {1 0 piece/256 {b//4} C*64//1024 0} (the last launch does not count)
// trips update_centroids: ceil(B*H*C/4) blocks, i+1 launches, loops 0 2 0 0
#include "core/kernels/hamming_kmeans.h"

#include <algorithm>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int assign_threads = 256;
constexpr int centroid_tile = 512;            // 4 KB
constexpr int64_t counter_bytes = 32 * 1024;  // of shared memory a block, so that several blocks share a multiprocessor
constexpr int update_threads = 128;

struct HammingProblem {
  KMeansSize size;
  int stride = 0;  // of a cluster's counters
  const uint64_t* codes = nullptr;
  const int32_t* lengths = nullptr;
  uint64_t* centroids = nullptr;
  uint32_t* ones = nullptr;
  uint32_t* members = nullptr;

  // Valid queries of a row.
  __device__ int64_t valid(int64_t row) const { return lengths ? lengths[row / size.H] : size.N; }
};

// The lowest of the nearest centroids of `code`, by all threads of a block together (a thread without a query takes
// part for its share of the loading).
__device__ int32_t nearest_centroid(uint64_t code, const uint64_t* centroids, int64_t C) {
  __shared__ uint64_t tile[centroid_tile];
  uint32_t best = 0xffffffffu;  // (distance, cluster) in 7 and 25 bits: the smallest is what we look for
  for (int64_t first = 0; first < C; first += centroid_tile) {
    const int count = int(min(int64_t(centroid_tile), C - first));
    __syncthreads();
    for (int c = int(threadIdx.x); c < count; c += assign_threads) tile[c] = centroids[first + c];
    __syncthreads();
    for (int c = 0; c < count; ++c) best = min(best, (uint32_t(__popcll(code ^ tile[c])) << 25) + uint32_t(first + c));
  }
  return int32_t(best & ((1u << 25) - 1));
}

// Adds the bits of the block's queries [begin, end) of a row to the counters. The table in shared memory covers
// `tile` clusters at a time. Lanes of a warp count different bits at a time, in different banks of shared memory.
__device__ void count_bits(const HammingProblem& p, int64_t row, int64_t begin, int64_t end, int tile,
                           const int32_t* labels) {
  uint32_t* const ones = dynamic_shared<uint32_t>();  // [tile, stride]
  uint32_t* const members = ones + tile * p.stride;   // [tile]
  const int bits = p.size.bits, table = tile * (p.stride + 1);

  for (int64_t first = 0; first < p.size.C; first += tile) {
    for (int i = int(threadIdx.x); i < table; i += assign_threads) ones[i] = 0;
    __syncthreads();
    for (int64_t q = begin + threadIdx.x; q < end; q += assign_threads) {
      const int64_t cluster = labels[row * p.size.N + q] - first;
      if (cluster < 0 || cluster >= tile) continue;
      const uint64_t code = p.codes[row * p.size.N + q];
      atomicAdd(&members[cluster], 1u);
      int bit = int(threadIdx.x % 32) % bits;
      for (int i = 0; i < bits; ++i) {
        if (code >> bit & 1) atomicAdd(&ones[cluster * p.stride + bit], 1u);
        if (++bit == bits) bit = 0;
      }
    }
    __syncthreads();
    const int64_t start = row * p.size.C + first;
    const int clusters = int(min(int64_t(tile), p.size.C - first));
    for (int i = int(threadIdx.x); i < clusters * p.stride; i += assign_threads)
      if (ones[i] != 0) atomicAdd(&p.ones[start * p.stride + i], ones[i]);
    for (int i = int(threadIdx.x); i < clusters; i += assign_threads)
      if (members[i] != 0) atomicAdd(&p.members[start + i], members[i]);
    __syncthreads();  // the table is used again
  }
}

// Block (row, piece): labels `piece_size` queries. tile = 0: after the last update, when nothing is counted any more.
__global__ void __launch_bounds__(assign_threads)
    assign_queries(HammingProblem p, int64_t piece_size, int64_t pieces_per_row, int tile, int32_t* labels) {
  const int64_t row = blockIdx.x / pieces_per_row, n = p.valid(row);
  const int64_t begin = blockIdx.x % pieces_per_row * piece_size, end = min(begin + piece_size, p.size.N);
  const bool own_clusters = p.size.C >= n;
  for (int64_t first = begin; first < end; first += assign_threads) {
    const int64_t q = first + threadIdx.x;
    int32_t label = int32_t(q);
    if (!own_clusters && first < n)
      label = nearest_centroid(q < n ? p.codes[row * p.size.N + q] : 0, p.centroids + row * p.size.C, p.size.C);
    if (q < end) labels[row * p.size.N + q] = q < n ? label : -1;
  }
  if (tile > 0 && !own_clusters && begin < n) count_bits(p, row, begin, min(end, n), tile, labels);
}

// Update number t of all centroids; number 0 is the start.
__global__ void __launch_bounds__(update_threads) update_centroids(HammingProblem p, Draw draw, int t) {
  const int64_t cluster = (int64_t(blockIdx.x) * update_threads + threadIdx.x) / 32, C = p.size.C;
  if (cluster >= p.size.B * p.size.H * C) return;
  const int lane = int(threadIdx.x % 32);
  const int64_t row = cluster / C, c = cluster % C, n = p.valid(row);
  uint32_t* const ones = p.ones + cluster * p.stride;
  const uint32_t members = t == 0 ? 0 : p.members[cluster];
  uint64_t centroid = t == 0 || C >= n ? 0 : p.centroids[cluster];  // C >= n: nobody wrote it

  for (int base = 0; base < p.stride; base += 32) {
    const uint32_t have = t == 0 ? 0 : ones[base + lane], have_not = members - have;
    const bool bit = have > have_not || (have == have_not && (centroid >> (base + lane) & 1) != 0);
    const uint64_t voted = __ballot_sync(full_warp, bit);
    centroid = (centroid & ~(uint64_t(full_warp) << base)) | voted << base;
    ones[base + lane] = 0;
  }
  if (lane != 0) return;

  p.members[cluster] = 0;
  if (C >= n) return;  // every query is its own cluster
  if (members == 0) centroid = p.codes[row * p.size.N + draw_query(draw.key(), row, c, C, n, t)];
  p.centroids[cluster] = centroid;
}

}  // namespace

void hamming_kmeans(Stream stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths, Draw draw,
                    Workspace& workspace, int32_t* labels) {
  const int64_t rows = size.B * size.H;
  if (rows * size.N == 0) return;
  check(size.C < int64_t{1} << 25, "hamming_kmeans: expected fewer than 2^25 clusters, got ", size.C);

  const int64_t clusters = rows * size.C;
  HammingProblem problem{size, size.bits <= 32 ? 32 : 64, codes, lengths};
  problem.centroids = workspace.take<uint64_t>(clusters);
  problem.ones = workspace.take<uint32_t>(clusters * problem.stride);
  problem.members = workspace.take<uint32_t>(clusters);

  // Larger pieces merge more counts before they leave the block; smaller ones make blocks for the whole card.
  int64_t piece_size = assign_threads * 8;
  while (piece_size > assign_threads && rows * ceil_div(size.N, piece_size) < 1024) piece_size /= 2;
  const int64_t pieces_per_row = ceil_div(size.N, piece_size);
  const int64_t bytes_per_cluster = 4 * (problem.stride + 1);
  const int tile = int(std::min(size.C, counter_bytes / bytes_per_cluster));

  const auto update = [&](int t) {
    const int64_t blocks = ceil_div(clusters * 32, update_threads);
    if (blocks > 0) launch(update_centroids, {blocks, update_threads, 0, stream}, problem, draw, t);
  };
  const auto assign = [&](int counted) {
    launch(assign_queries, {rows * pieces_per_row, assign_threads, size_t(counted * bytes_per_cluster), stream},
           problem, piece_size, pieces_per_row, counted, labels);
  };
  update(0);
  for (int t = 1; t <= size.iterations; ++t) {
    assign(tile);
    update(t);
  }
  assign(0);
}

}  // namespace cairn::gpu
