// A stable counting sort of queries by cluster: the members of a cluster stand together, in rising order. Permutation
// and offsets equal the CPU's, because they are integers. (label_queries, below: clusters of consecutive queries.)
//
// Shapes. A row is one (batch element, head): N queries, R = B * H rows. Labels outside [0, C) count as label C, which
// comes last.
//   labels, permutation [R, N], offsets [R, C + 1]
//
// Launch. A block takes a chunk of a row and 512 labels: it places those queries of the chunk that have these
// labels. It counts the labels of the whole row, so that no block waits for another. Each warp has a part of the
// chunk.
//   count   The block's table has a column for each label: its number of queries before the chunk, in the part of each
//           warp, and after the chunk. Threads count by atomics in shared memory. Queries of earlier labels are one
//           sum.
//   scan    A thread takes a column. The sum of the columns before it is where its label begins. From there, sums down
//           the column are where the members in the part of each warp begin.
//   place   A warp takes its part, 32 queries at a time. The place of a query is the table's number plus the number of
//           lower lanes with the same label. Lanes with equal labels find each other by one ballot for each bit. So no
//           atomics are needed, and the result does not depend on the order of lanes.
// There are about 256 blocks. A chunk has at least 512 queries, and a row at most 16 chunks, because with more,
// counting would take far longer than placing.
// Traffic: 8 bytes a query, the floor. A row is read once for each chunk and each 512 labels; all readings but the
// first come from the L2 cache.
#include "core/kernels/clusters.h"

#include <algorithm>
#include <bit>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 512, warps = threads / 32;
constexpr int columns = threads;  // of the table: labels
constexpr int slots = warps + 2;  // of a label: before the chunk, the parts of the warps, after the chunk
constexpr int at_once = 4;        // labels that a thread loads before it counts them
constexpr int64_t max_chunks = 16, wanted_blocks = 256;

struct SortProblem {
  uint32_t N, C, chunks, queries_per_chunk;
  uint32_t tables;  // that have columns for all labels
  int bits;         // of a column's number
  const int32_t* labels;
  int32_t* permutation;
  int32_t* offsets;
};

// The lanes of `mask` that have the same value as this lane. Values are below 2^bits.
__device__ uint32_t equals(uint32_t mask, uint32_t value, int bits) {
  for (int bit = 0; bit < bits; ++bit) {
    const bool set = value >> bit & 1;
    const uint32_t votes = __ballot_sync(full_warp, set);
    mask &= set ? votes : ~votes;
  }
  return mask;
}

__global__ void __launch_bounds__(threads) sort_queries(SortProblem p) {
  wait_for_earlier_launches();
  __shared__ int32_t table[slots][columns], of_warp[warps];
  const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const uint32_t first = blockIdx.x % p.tables * columns;  // label
  const uint32_t row = blockIdx.x / p.tables / p.chunks, chunk = blockIdx.x / p.tables % p.chunks;
  const int32_t* const labels = p.labels + int64_t(row) * p.N;
  int32_t* const permutation = p.permutation + int64_t(row) * p.N;
  int32_t* const offsets = p.offsets + int64_t(row) * (int64_t(p.C) + 1);
  // The queries of the block, and of this warp.
  const uint32_t begin = chunk * p.queries_per_chunk, end = min(begin + p.queries_per_chunk, p.N);
  const uint32_t warp_queries = 32 * ((p.queries_per_chunk + threads - 1) / threads);
  const uint32_t warp_begin = min(begin + warp * warp_queries, end), warp_end = min(warp_begin + warp_queries, end);
  int32_t* const starts = table[1 + warp];

  int32_t earlier = 0;  // queries of earlier labels
  // Counts queries [from, to) in a row of the table. `step` threads do so together; this is number `me`. Each loads
  // several labels before it counts them.
  const auto count = [&](uint32_t from, uint32_t to, int32_t* of_slot, uint32_t me, uint32_t step) {
    for (uint32_t i = from + me; i - me < to; i += at_once * step) {
      int32_t loaded[at_once];
#pragma unroll
      for (uint32_t j = 0; j < at_once; ++j) loaded[j] = labels[min(i + j * step, to - 1)];
#pragma unroll
      for (uint32_t j = 0; j < at_once; ++j) {
        const uint32_t label = min(uint32_t(loaded[j]), p.C);
        if (i + j * step >= to) continue;
        earlier += label < first;
        if (label - first < columns) atomicAdd(of_slot + (label - first), 1);
      }
    }
  };
#pragma unroll
  for (int s = 0; s < slots; ++s) table[s][thread] = 0;
  __syncthreads();
  count(0, begin, table[0], thread, threads);
  count(end, p.N, table[slots - 1], thread, threads);
  count(warp_begin, warp_end, starts, lane, 32);
  earlier = block_reduce(earlier, 0, Sum{});

  int32_t counts[slots], total = 0;
#pragma unroll
  for (int s = 0; s < slots; ++s) total += counts[s] = table[s][thread];
  const int32_t sum = warp_scan(total);
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int32_t start = earlier + sum - total;
  for (uint32_t w = 0; w < warp; ++w) start += of_warp[w];
  if (chunk == 0 && first + thread <= p.C) offsets[first + thread] = start;
#pragma unroll
  for (int s = 0; s < 1 + warps; ++s) {
    table[s][thread] = start;
    start += counts[s];
  }
  __syncthreads();  // the starts of all parts are in the table

  int32_t next = warp_begin < warp_end ? labels[min(warp_begin + lane, p.N - 1)] : 0;
  for (uint32_t i = warp_begin + lane; i - lane < warp_end; i += 32) {
    const uint32_t mine = min(uint32_t(next), p.C) - first;
    next = labels[min(i + 32, p.N - 1)];  // loads ahead
    const bool placed = i < warp_end && mine < columns;
    const uint32_t peers = equals(__ballot_sync(full_warp, placed), mine, p.bits);
    const int32_t place = placed ? starts[mine] + __popc(peers & ((1u << lane) - 1)) : 0;
    __syncwarp();  // all have read `starts` before the last of equal lanes raises it
    if (placed) permutation[place] = int32_t(i);
    if (placed && peers >> lane == 1) starts[mine] = place + 1;
    __syncwarp();
  }
}

// A thread takes a query. Bound by integer divisions, about a hundred instructions a query. The lengths are in device
// memory, so the host does not wait.
constexpr int label_threads = 256;

__global__ void __launch_bounds__(label_threads)
    label_queries(ClusterSizes size, const int32_t* lengths, bool shift, int32_t* labels) {
  const int64_t query = int64_t(blockIdx.x) * label_threads + threadIdx.x;
  if (query >= size.B * size.H * size.N) return;
  const int64_t batch_head = query / size.N, i = query % size.N, n = lengths ? lengths[batch_head / size.H] : size.N;
  labels[query] = i < n ? position_label(i, n, size.C, shift) : -1;
}

// A thread takes a place in a list.
__global__ void __launch_bounds__(label_threads)
    write_members(ClusterSizes size, int64_t width, ClusterView clusters, int32_t* members) {
  const int64_t place = int64_t(blockIdx.x) * label_threads + threadIdx.x, cluster = place / width;
  if (cluster >= size.B * size.H * size.C) return;
  const int64_t batch_head = cluster / size.C, i = place % width;
  const int32_t* const offsets = clusters.offsets + batch_head * (size.C + 1) + cluster % size.C;
  const bool there = i < offsets[1] - offsets[0];
  members[place] = there ? clusters.permutation[batch_head * size.N + offsets[0] + i] : -1;
}

}  // namespace

void sort_by_label(Stream stream, ClusterSizes size, const int32_t* labels, int32_t* permutation, int32_t* offsets) {
  const int64_t rows = size.B * size.H, N = size.N, tables = ceil_div(size.C + 1, columns);
  if (rows == 0) return;
  const int64_t wanted = std::min({max_chunks, ceil_div(wanted_blocks, rows * tables), ceil_div(N, threads)});
  const int64_t queries_per_chunk = threads * ceil_div(std::max<int64_t>(1, N), threads * std::max<int64_t>(1, wanted));
  const int64_t chunks = std::max<int64_t>(1, ceil_div(N, queries_per_chunk));
  const int bits = int(std::bit_width(uint64_t(std::min<int64_t>(columns - 1, size.C))));
  const SortProblem problem{
      uint32_t(N), uint32_t(size.C), uint32_t(chunks), uint32_t(queries_per_chunk), uint32_t(tables), bits,
      labels,      permutation,      offsets};
  launch(sort_queries, overlapped({rows * chunks * tables, threads, 0, stream}), problem);
}

void list_members(Stream stream, ClusterSizes size, int64_t width, ClusterView clusters, int32_t* members) {
  const int64_t places = size.B * size.H * size.C * width;
  if (places == 0) return;
  launch(write_members, {ceil_div(places, label_threads), label_threads, 0, stream}, size, width, clusters, members);
}

void position_labels(Stream stream, ClusterSizes size, const int32_t* lengths, bool shift, int32_t* labels) {
  const int64_t queries = size.B * size.H * size.N;
  if (queries == 0) return;
  launch(label_queries, {ceil_div(queries, label_threads), label_threads, 0, stream}, size, lengths, shift, labels);
}

}  // namespace cairn::gpu
