// A stable counting sort of queries by their cluster, so that the members of a cluster stand together, rising. All are
// whole numbers: the permutation and the offsets are the CPU's.
//
// Shapes. A row is one (batch element, head): N queries, R = B * H rows. Labels outside [0, C) share bucket C, which
// comes last. A row is cut into P pieces.
//   labels, ranks, permutation [R, N], table [R, C + 1, P], offsets [R, C + 1]
//
// Launch. Four kernels over all rows; the place of a query is the sum of what the first three find.
//   rank_queries   a warp takes a piece, 32 queries at a time. A query's rank is the number of queries of its bucket
//                  before it in the piece: those of earlier rounds, which the warp counts in its column of the table,
//                  and the lanes below with the same label. Lanes find their equals by one vote for each bit of the
//                  label, so that a round has no order of its own and no atomics.
//   scan_pieces    a warp takes a bucket: its members in earlier pieces, for each piece, and in all of them
//   scan_buckets   a block takes a row: where its buckets begin
//   place_queries  a thread takes a query
// A piece has a quarter as many queries as there are clusters, or more: so the table has at most four words a query.
// There are at most 1024 pieces, which keeps the scan short, of at least 256 queries.
// Traffic: 20 bytes a query and up to 64 for the table, mostly from the L2 cache; the floor is 8. The steps of a warp
// wait for each other, so it is latency that bounds the first kernel: about half a microsecond for 32 queries.
//
// size piece: 32*ceil(max(256,C//4,ceil(N/1024))/32)
// size pieces: ceil(N/piece)
// cost rank_queries: 12*B*H*N bytes, 0 FLOPs
// cost scan_pieces: 8*B*H*(C+1)*pieces bytes, 0 FLOPs
// cost scan_buckets: 8*B*H*(C+1) bytes, 0 FLOPs
// cost place_queries: 12*B*H*N bytes, 0 FLOPs
//
// trips rank_queries: ceil(B*H*pieces/8) blocks, loops piece/32 {int(1+log(C,2))//4}
// trips scan_pieces: ceil(B*H*(C+1)/8) blocks, loops pieces//128 ceil(pieces%128/32)
// trips scan_buckets: B*H blocks, loops ceil((C+1)/256)
// trips place_queries: B*H*ceil(N/256) blocks
#include "core/kernels/group.h"

#include <algorithm>
#include <bit>

#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int64_t shortest_piece = 256, max_pieces = 1024;

struct GroupProblem {
  GroupSize size;
  int64_t piece_size = 0, pieces = 0;
  const int32_t* labels = nullptr;
  int32_t* ranks = nullptr;
  int32_t* table = nullptr;

  CAIRN_HD int64_t rows() const { return size.B * size.H; }
  CAIRN_HD int64_t buckets() const { return size.C + 1; }
  // The bucket of query i of a row.
  __device__ int32_t bucket(int64_t row, int64_t i) const {
    const int32_t label = labels[row * size.N + i];
    return label >= 0 && label < size.C ? label : int32_t(size.C);
  }
  // The table's entries of a bucket, one a piece.
  __device__ int32_t* entries(int64_t row, int64_t bucket) const { return table + (row * buckets() + bucket) * pieces; }
};

// The lanes of `mask` that have the same value as this one; of values below 2^bits.
__device__ uint32_t equals(uint32_t mask, int32_t value, int bits) {
  for (int bit = 0; bit < bits; ++bit) {
    const bool set = value >> bit & 1;
    const uint32_t votes = __ballot_sync(full_warp, set);
    mask &= set ? votes : ~votes;
  }
  return mask;
}

// The sum of the values of this lane and of those below.
__device__ int32_t warp_scan(int32_t value) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t below = __shfl_up_sync(full_warp, value, unsigned(distance));
    if (int(threadIdx.x % 32) >= distance) value += below;
  }
  return value;
}

// The table is 0 before.
__global__ void __launch_bounds__(threads) rank_queries(GroupProblem p, int bits) {
  const int64_t task = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (task >= p.rows() * p.pieces) return;
  const int lane = int(threadIdx.x % 32);
  const int64_t row = task / p.pieces, piece = task % p.pieces;
  const int64_t begin = piece * p.piece_size, end = min(begin + p.piece_size, p.size.N);
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + lane;
    const bool mine = i < end;
    const int32_t bucket = mine ? p.bucket(row, i) : 0;
    const uint32_t peers = equals(__ballot_sync(full_warp, mine), bucket, bits);
    int32_t* const count = p.entries(row, bucket) + piece;
    const int32_t rank = *count + __popc(peers & ((1u << lane) - 1));
    __syncwarp();  // all have read before the last of the equals counts them
    if (mine) p.ranks[row * p.size.N + i] = rank;
    if (mine && peers >> lane == 1) *count = rank + 1;
    __syncwarp();
  }
}

__global__ void __launch_bounds__(threads) scan_pieces(GroupProblem p, int32_t* totals) {
  const int64_t task = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (task >= p.rows() * p.buckets()) return;
  int32_t* const entries = p.table + task * p.pieces;
  int32_t before = 0;
  for (int64_t first = 0; first < p.pieces; first += 32) {
    const int64_t piece = first + threadIdx.x % 32;
    const int32_t count = piece < p.pieces ? entries[piece] : 0, sum = warp_scan(count);
    if (piece < p.pieces) entries[piece] = before + sum - count;
    before += __shfl_sync(full_warp, sum, 31);
  }
  if (threadIdx.x % 32 == 0) totals[task] = before;
}

// Each number becomes the sum of those before it in its row.
__global__ void __launch_bounds__(threads) scan_buckets(int64_t buckets, int32_t* offsets) {
  __shared__ int32_t of_warp[warps];
  const int warp = int(threadIdx.x / 32);
  int32_t* const row = offsets + blockIdx.x * buckets;
  int32_t before = 0;
  for (int64_t first = 0; first < buckets; first += threads) {
    const int64_t bucket = first + threadIdx.x;
    const int32_t count = bucket < buckets ? row[bucket] : 0, sum = warp_scan(count);
    if (threadIdx.x % 32 == 31) of_warp[warp] = sum;
    __syncthreads();
    int32_t offset = before + sum - count;
    for (int w = 0; w < warps; ++w) {
      if (w < warp) offset += of_warp[w];
      before += of_warp[w];
    }
    if (bucket < buckets) row[bucket] = offset;
    __syncthreads();  // of_warp is written again
  }
}

__global__ void __launch_bounds__(threads) place_queries(GroupProblem p, const int32_t* offsets, int32_t* permutation) {
  const auto blocks_a_row = uint32_t(ceil_div(p.size.N, threads));
  const int64_t row = blockIdx.x / blocks_a_row, i = int64_t(blockIdx.x % blocks_a_row) * threads + threadIdx.x;
  if (i >= p.size.N) return;
  const int32_t bucket = p.bucket(row, i);
  const int32_t place = offsets[row * p.buckets() + bucket] +
                        p.entries(row, bucket)[uint32_t(i) / uint32_t(p.piece_size)] + p.ranks[row * p.size.N + i];
  permutation[row * p.size.N + place] = int32_t(i);
}

}  // namespace

void group(Stream stream, GroupSize size, const int32_t* labels, int32_t* permutation, int32_t* offsets) {
  GroupProblem p{size};
  p.labels = labels;
  if (p.rows() == 0) return;
  if (size.N == 0)
    return check_cuda(cudaMemsetAsync(offsets, 0, size_t(p.rows() * p.buckets()) * sizeof(int32_t), native(stream)));

  p.piece_size = 32 * ceil_div(std::max({shortest_piece, size.C / 4, ceil_div(size.N, max_pieces)}), 32);
  p.pieces = ceil_div(size.N, p.piece_size);
  const int64_t entries = p.rows() * p.buckets() * p.pieces;
  Workspace workspace(Device::cuda);
  p.ranks = workspace.take<int32_t>(p.rows() * size.N);
  p.table = workspace.take<int32_t>(entries);

  check_cuda(cudaMemsetAsync(p.table, 0, size_t(entries) * sizeof(int32_t), native(stream)));
  launch(rank_queries, {ceil_div(p.rows() * p.pieces, warps), threads, 0, stream}, p, std::bit_width(uint32_t(size.C)));
  launch(scan_pieces, {ceil_div(p.rows() * p.buckets(), warps), threads, 0, stream}, p, offsets);
  launch(scan_buckets, {p.rows(), threads, 0, stream}, p.buckets(), offsets);
  launch(place_queries, {p.rows() * ceil_div(size.N, threads), threads, 0, stream}, p, offsets, permutation);
}

}  // namespace cairn::gpu
