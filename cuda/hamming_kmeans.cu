// K-means of binary codes under the Hamming distance (the paper's section 3.2.2, step 2): Lloyd's algorithm, started
// from one query of each of C strata. core/kernels/hamming_kmeans.h has the definition; the labels are the CPU's, bit
// for bit, because everything that threads add up is a whole number.
//
// Shapes. A row is one (batch element, head): N codes of which the first n = lengths[b] are valid. R = B * H rows.
//   codes [R, N], labels [R, N], centroids [R, C]
//   ones [R, C, stride]: how many members of a cluster have each bit; stride is `bits` rounded up to whole warps
//   members [R, C]
//
// All iterations in one launch, on GPUs with clusters of blocks (compute capability 9.0).
//   cluster_queries    a cluster of up to 8 blocks takes a row. A block has a share of the codes in shared memory, all
//                      centroids, and counters of its share's members and of their bits. A warp labels 32 queries at a
//                      time; then each of its threads counts one of them. After a barrier of the cluster, a warp takes
//                      a centroid: it sums the counters of all blocks, votes, and writes the new centroid into the
//                      memory of all blocks.
//
// Distances are products on tensor cores. A bit is a byte, 64 or -64, so the product of two codes is
// 2^13 (32 - distance). The sum starts from 2^13 - 1 - cluster: the largest score is that of the nearest centroid, and
// of the lowest one on a tie. An assignment is R N C / 64 products of 16 x 8 x 32: 24 us for 11 assignments at R = 24,
// N = 4096, C = 100, if all 132 multiprocessors worked. Popcounts would take 58: two a distance, 16 a clock.
//
// Bits are counted by atomics in shared memory. A query takes 32 of them; each word counts two bits. (A count is below
// 2^16, because a block has fewer queries.) The lanes of a warp add to 32 different banks. A product of the members'
// bits with the matrix of memberships would instead double the work of the tensor cores.
//
// A row's cluster has as many blocks as make about 128 in all, each of 128 queries or more. It has more where the
// shared memory of a block would not suffice (ClusterPlan::shared_bytes). The labels do not depend on its size. The
// limits are C < 8192, N < 2^20, and shared memory: with 227 KB, N = 210,000 at C = 100, or C = 1100 at N = 4096.
// Memory: 12 bytes a query, the floor. Between blocks, an iteration moves 196 bytes a centroid and block through
// distributed shared memory.
//
// An iteration in two launches, elsewhere. The host never waits.
//   assign_queries     a block takes up to 2048 queries of a row, 256 at a time, a thread one of them. They meet
//                      the centroids, 512 of them at a time in shared memory; then the block counts bits and
//                      members of its queries in shared memory, a tile of clusters after the other, and adds what
//                      is not 0 to `ones` and `members`.
//   update_centroids   a warp takes a cluster, a lane every 32nd bit; the warp votes the new code together. It leaves
//                      `ones` and `members` at 0 for the next iteration.
// An iteration takes 2 R N C popcounts of 32-bit words, which bound it: a multiprocessor does 16 a clock. Memory: 8
// bytes a code, the floor, plus 8 more for the second reading and 8 for writing and reading the label (from the cache,
// mostly); R C (4 stride + 12) bytes read and written for the counters, which stay in the L2 cache.
#include "core/kernels/hamming_kmeans.h"

#include <algorithm>
#include <climits>
#include <optional>

#include "cuda/cluster.cuh"
#include "cuda/common.cuh"
#include "cuda/mma.cuh"

namespace cairn::gpu {
namespace {

// A bit of a new centroid: the strict majority of its members', on a tie the old one.
__device__ bool voted_bit(uint32_t have, uint32_t members, bool old) {
  const uint32_t have_not = members - have;
  return have > have_not || (have == have_not && old);
}

// ---- an iteration in two launches

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
  __device__ int64_t valid(int64_t row) const { return lengths ? lengths[uint32_t(row) / uint32_t(size.H)] : size.N; }
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
    const uint32_t have = t == 0 ? 0 : ones[base + lane];
    const uint64_t voted = __ballot_sync(full_warp, voted_bit(have, members, centroid >> (base + lane) & 1));
    centroid = (centroid & ~(uint64_t(full_warp) << base)) | voted << base;
    ones[base + lane] = 0;
  }
  if (lane != 0) return;

  p.members[cluster] = 0;
  if (C >= n) return;  // every query is its own cluster
  if (members == 0) centroid = p.codes[row * p.size.N + draw_query(draw.key(), draw.row(row), c, C, n, t)];
  p.centroids[cluster] = centroid;
}

// ---- all iterations in one launch

constexpr int most_blocks = 8;  // of a cluster, on any GPU that has them
constexpr int cluster_threads = 512, cluster_warps = cluster_threads / 32;
constexpr int strip = 32;       // queries that a warp labels at a time
constexpr int words = 32;       // of the counters of a cluster, of two bits each
constexpr int low_bits = 8191;  // the lowest 13 bits of a score: this minus the cluster

// How a row is shared out to a cluster of blocks.
struct ClusterPlan {
  int cluster, C, N;  // blocks of a cluster, centroids and queries of a row
  int padded;         // centroids in whole tiles of 8
  int own;            // the most centroids that a block updates: rank, rank + cluster, ...

  ClusterPlan(KMeansSize size, int blocks) : cluster(blocks), C(int(size.C)), N(int(size.N)) {
    padded = 8 * int(ceil_div(C, 8));
    own = int(ceil_div(C, cluster));
  }
  // Queries of a block, in whole strips, where a row has n of them.
  CAIRN_HD int share(int n) const { return (n + strip * cluster - 1) / (strip * cluster) * strip; }
  CAIRN_HD int counters() const { return C * (words + 1); }
  CAIRN_HD int64_t shared_bytes() const { return int64_t{64} * padded + 8 * (share(N) + own) + 4 * counters(); }
};

// What a block has in shared memory.
struct ClusterMemory {
  uint4* signs;         // [padded, 4] centroids as bytes of 64 and -64, those after the last one as copies of it
  uint64_t* codes;      // [share]
  uint64_t* centroids;  // [own]
  uint32_t* counters;   // [C, words]: of the members that have a bit
  uint32_t* members;    // [C]

  __device__ explicit ClusterMemory(const ClusterPlan& plan)
      : signs(dynamic_shared<uint4>()),
        codes(reinterpret_cast<uint64_t*>(signs + 4 * plan.padded)),
        centroids(codes + plan.share(plan.N)),
        counters(reinterpret_cast<uint32_t*>(centroids + plan.own)),
        members(counters + plan.C * words) {}
};

// Bits i, i + 8, i + 16, i + 24 of a word as four bytes, i < 8: 64 if the bit is set, -64 if not.
__device__ uint32_t signs_of(uint32_t word, int i) { return ((word << (7 - i)) & 0x80808080u) ^ 0xc0c0c0c0u; }
// What lane 4 g + t has of a code in fragments of mma_s8: bits 4 (t % 2) .. 4 (t % 2) + 3 of each byte of word t / 2.
// (Any order of the bits will do that is the same for queries and centroids.)
__device__ uint4 signs_of(uint64_t code, int t) {
  const uint32_t word = uint32_t(code >> 32 * (t / 2));
  const int first = 4 * (t % 2);
  return {signs_of(word, first), signs_of(word, first + 1), signs_of(word, first + 2), signs_of(word, first + 3)};
}

// The nearest of all centroids for 32 queries. Lane 4 g + t gets that of query g + 8 t.
__device__ int32_t nearest_of_strip(const uint64_t* codes, const uint4* centroids, int padded) {
  const int lane = int(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  uint32_t a[2][2][4];  // of 16 queries and 32 bits each
  for (int m = 0; m < 2; ++m) {
    const uint4 low = signs_of(codes[16 * m + g], t), high = signs_of(codes[16 * m + g + 8], t);
    const uint32_t fragments[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < 4; ++i) a[m][half][i] = fragments[half][i];
  }
  int best[4] = {INT_MIN, INT_MIN, INT_MIN, INT_MIN};
#pragma unroll 2
  for (int c = 0; c < padded; c += 8) {
    const uint4 b = centroids[4 * c + lane];
    const int low = low_bits - c - 2 * t;
    int score[2][4] = {{low, low - 1, low, low - 1}, {low, low - 1, low, low - 1}};
    for (int m = 0; m < 2; ++m) mma_s8(score[m], a[m][0], b.x, b.y);
    for (int m = 0; m < 2; ++m) mma_s8(score[m], a[m][1], b.z, b.w);
    for (int k = 0; k < 4; ++k) best[k] = max(best[k], max(score[k / 2][k % 2 * 2], score[k / 2][k % 2 * 2 + 1]));
  }
  // Four lanes have seen different centroids for the same four queries; each ends with one query.
  const bool upper = t >= 2, odd = t % 2 != 0;
  for (int i = 0; i < 2; ++i) {
    const int other = __shfl_xor_sync(full_warp, upper ? best[i] : best[2 + i], 2);
    best[i] = max(upper ? best[2 + i] : best[i], other);
  }
  const int other = __shfl_xor_sync(full_warp, odd ? best[0] : best[1], 1);
  return low_bits - (max(odd ? best[1] : best[0], other) & low_bits);
}

// Adds the bits of a member to the counters of its cluster. Word j has the counts of bits j and j + 16, word 16 + j
// those of bits 32 + j and 48 + j. At any time the lanes add to different words, so in different banks, whatever their
// clusters are.
__device__ void add_bits(uint32_t* counters, uint64_t code) {
  const int lane = int(threadIdx.x % 32);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int upper = half ^ lane / 16;
    const uint32_t word = uint32_t(code >> 32 * upper);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int i = lane % 16 ^ j;
      atomicAdd(counters + 16 * upper + i, word >> i & 0x00010001u);
    }
  }
}

// A warp's update of centroid c = rank + i * cluster: sums the counters of all blocks, leaves them at 0, and gives all
// blocks the new centroid. draw() is the code with which a cluster without members starts again.
template <class F>
__device__ void update_centroid(const ClusterPlan& plan, const ClusterMemory& memory, int c, int i, F draw) {
  const int lane = int(threadIdx.x % 32);
  uint32_t pairs[most_blocks], members = 0;
#pragma unroll
  for (int b = 0; b < most_blocks; ++b)  // all at once
    pairs[b] = b < plan.cluster ? atomicExch(neighbor_shared(memory.counters + c * words, unsigned(b)) + lane, 0u) : 0;
  if (lane < plan.cluster) members = atomicExch(neighbor_shared(memory.members + c, unsigned(lane)), 0u);
  members = warp_reduce(members, Sum{});
  uint32_t low = 0, high = 0;
#pragma unroll
  for (int b = 0; b < most_blocks; ++b) {
    low += pairs[b] & 0xffff;
    high += pairs[b] >> 16;
  }

  // Lane j has the counts of bits j and j + 16, lane 16 + j those of bits 32 + j and 48 + j.
  uint64_t& centroid = memory.centroids[i];
  const uint32_t old = uint32_t(centroid >> lane / 16 * 32) >> lane % 16;
  const uint32_t lower = __ballot_sync(full_warp, voted_bit(low, members, old & 1));
  const uint32_t upper = __ballot_sync(full_warp, voted_bit(high, members, old >> 16 & 1));
  uint64_t code = uint64_t(lower >> 16 | (upper & 0xffff0000u)) << 32 | ((lower & 0xffff) | upper << 16);
  if (members == 0) code = draw();

  if (lane == 0) centroid = code;
  const int b = lane / 4, t = lane % 4;
  if (b >= plan.cluster) return;
  uint4* const to = neighbor_shared(memory.signs, unsigned(b));
  const int end = c + 1 < plan.C ? c + 1 : plan.padded;
#pragma unroll 1
  for (int copy = c; copy < end; ++copy) to[4 * copy + t] = signs_of(code, t);
}

// Cluster `row` of blocks labels the queries of a row.
__global__ void __launch_bounds__(cluster_threads, 1)
    cluster_queries(HammingProblem p, ClusterPlan plan, Draw draw, int32_t* labels) {
  const int rank = int(cluster_rank()), thread = int(threadIdx.x), lane = thread % 32;
  const int64_t row = blockIdx.x / unsigned(plan.cluster);
  const int C = plan.C, n = int(p.valid(row));
  const uint64_t* const row_codes = p.codes + row * plan.N;
  labels += row * plan.N;
  const bool own_clusters = C >= n;
#pragma unroll 1
  for (int q = (own_clusters ? 0 : n) + rank * cluster_threads + thread; q < plan.N;
       q += plan.cluster * cluster_threads)
    labels[q] = q < n ? q : -1;
  if (own_clusters) return;

  const ClusterMemory memory(plan);
  const int share = plan.share(n), begin = min(rank * share, n), count = min(share, n - begin);
#pragma unroll 1
  for (int i = thread; i < count; i += cluster_threads) copy_async<8>(memory.codes + i, row_codes + begin + i, true);
  commit_copies();
#pragma unroll 1
  for (int i = thread; i < plan.counters(); i += cluster_threads) memory.counters[i] = 0;
  const PhiloxKey key = draw.key();
  for (int c = thread; c < plan.padded; c += cluster_threads) {
    const uint64_t code = row_codes[draw_query(key, draw.row(row), min(c, C - 1), C, n, 0)];
    for (int t = 0; t < 4; ++t) memory.signs[4 * c + t] = signs_of(code, t);
    if (c < C && c % plan.cluster == rank) memory.centroids[c / plan.cluster] = code;
  }
  wait_for_copies<0>();
  __syncthreads();

  for (int iteration = 1;; ++iteration) {
    const bool last = iteration > p.size.iterations;
    for (int first = thread / 32 * strip; first < count; first += cluster_warps * strip) {
      const int32_t label = nearest_of_strip(memory.codes + first, memory.signs, plan.padded);
      const int q = first + lane / 4 + lane % 4 * 8;
      if (q >= count) continue;
      if (last) {
        labels[begin + q] = label;
      } else {
        atomicAdd(memory.members + label, 1u);
        add_bits(memory.counters + label * words, memory.codes[q]);
      }
    }
    if (last) return;  // the neighbors' last use of this block's memory stands before the latest barrier
    cluster_sync();
    for (int i = thread / 32, c; (c = rank + i * plan.cluster) < C; i += cluster_warps)
      update_centroid(plan, memory, c, i,
                      [&] { return row_codes[draw_query(key, draw.row(row), c, C, n, iteration)]; });
    cluster_sync();
  }
}

// The clusters of blocks for all iterations in one launch; none where the GPU has none or too little shared memory, or
// where N or C are too large.
std::optional<ClusterPlan> one_launch(KMeansSize size) {
  if (!has_clusters() || size.N >= 1 << 20 || size.C > low_bits) return {};
  int device, most_shared;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  // About 128 blocks in all, as many as a large GPU has multiprocessors, of at least 128 queries each.
  const int64_t wanted = std::min(128 / (size.B * size.H), ceil_div(size.N, 128));
  for (int blocks = int(std::clamp<int64_t>(wanted, 1, most_blocks)); blocks <= most_blocks; ++blocks)
    if (const ClusterPlan plan(size, blocks); plan.shared_bytes() <= most_shared) return plan;
  return {};
}

}  // namespace

void hamming_kmeans(Stream stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths, Draw draw,
                    Workspace& workspace, int32_t* labels) {
  const int64_t rows = size.B * size.H;
  if (rows * size.N == 0) return;
  check(size.C < int64_t{1} << 25, "hamming_kmeans: expected fewer than 2^25 clusters, got ", size.C);

  HammingProblem problem{size, size.bits <= 32 ? 32 : 64, codes, lengths};
  if (const auto plan = one_launch(size))
    return launch(
        cluster_queries,
        {rows * plan->cluster, cluster_threads, size_t(plan->shared_bytes()), stream, unsigned(plan->cluster)}, problem,
        *plan, draw, labels);

  const int64_t clusters = rows * size.C;
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
