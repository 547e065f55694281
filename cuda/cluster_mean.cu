// reduce: sums or means of rows over the members of a cluster (the paper's equation 3). broadcast: copies a cluster's
// row to each of its members (equation 6). Each is the gradient of the other.
//
// Shapes. reduce: x [B, N, H, D], out [B, C, H, D]; broadcast the other way round; with any strides but of the last
// axis; float32 or bfloat16, sums in float32. Labels and permutation [B, H, N], offsets [B, H, C + 1].
//
// Launch.
//   reduce_cluster   a block takes a cluster of a (batch element, head). Its threads form a table of slots and columns:
//                    each thread has 16 bytes of the columns and every `slots`-th member, with four loads in flight.
//                    Slot 0 adds the sums of the slots in order, so the order of a sum depends on the shape and the
//                    permutation alone. A block has 64 to 256 threads, just enough to load an average cluster at once:
//                    small clusters wait for one chain of loads, so many small blocks are best.
//   broadcast_rows   a row of up to 32 threads takes a query, 16 bytes a thread
// Where rows or addresses are no multiples of 16 bytes, a thread takes one element instead.
// Traffic, e bytes an element: reduce e B H D (N + C) + 4 B H N, the floor. broadcast: e B H N D written, the floor
// (and as much read, if it adds), and as much read from the L2 cache, where the clusters' rows stay. Bound by memory; a
// single cluster of all N queries is bound by the loads that one multiprocessor can have in flight.
#include "core/kernels/cluster_mean.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int64_t min_threads = 64, max_threads = 256;
constexpr int broadcast_threads = 256;

struct ClusterProblem {
  Reduce kind;
  ClusterSizes size;
  int64_t packs;  // in a row
  ClusterView clusters;
  bool add = false;  // broadcast_rows: whether to add to out

  // Where cluster c of a (batch element, head) begins in the permutation; the next offset is its end.
  __device__ const int32_t* offset(int64_t batch_head, int64_t c) const {
    return clusters.offsets + batch_head * (size.C + 1) + c;
  }
  // The factor of a cluster's rows.
  __device__ float factor(int32_t members) const {
    return kind == Reduce::mean && members > 0 ? 1 / float(members) : 1.0f;
  }
};

// [eq. 3] [grad. 6] Shared memory: [width, slots, columns].
template <class T, int width>
__global__ void __launch_bounds__(max_threads, 4)
    reduce_cluster(ClusterProblem p, int columns, HeadView<const T> x, HeadView<T> out) {
  wait_for_earlier_launches();
  float* const of_slots = dynamic_shared<float>();
  const auto C = uint32_t(p.size.C), H = uint32_t(p.size.H), batch_head = blockIdx.x / C, c = blockIdx.x % C;
  const uint32_t b = batch_head / H, h = batch_head % H;
  const int32_t begin = p.offset(batch_head, c)[0], end = p.offset(batch_head, c)[1];
  const float factor = p.factor(end - begin);
  const int32_t* const members = p.clusters.permutation + int64_t(batch_head) * p.size.N;
  const T* const rows = x.batch_head(b, h);
  const int column = int(threadIdx.x) % columns, slot = int(threadIdx.x) / columns, slots = int(blockDim.x) / columns;
  const auto cell = [&](int k, int s) -> float& { return of_slots[(k * slots + s) * columns + column]; };

  for (int64_t at = column; at - column < p.packs; at += columns) {
    const bool mine = at < p.packs;
    float sum[width] = {};
    if (mine)
#pragma unroll 4
      for (int32_t i = begin + slot; i < end; i += slots) {
        const Pack<T, width> value = pack<width>(rows + members[i] * x.row_stride, at);
        for (int k = 0; k < width; ++k) sum[k] += float(value.element[k]);
      }
    for (int k = 0; k < width; ++k) cell(k, slot) = sum[k];
    __syncthreads();
    if (slot == 0 && mine) {
      for (int s = 1; s < slots; ++s)
        for (int k = 0; k < width; ++k) sum[k] += cell(k, s);
      Pack<T, width> result;
      for (int k = 0; k < width; ++k) result.element[k] = T(sum[k] * factor);
      pack<width>(out.at(b, c, h), at) = result;
    }
    __syncthreads();  // before the cells are written again
  }
}

// [eq. 6] [grad. 3]
template <class T, int width>
__global__ void __launch_bounds__(broadcast_threads)
    broadcast_rows(ClusterProblem p, int lanes, uint32_t blocks_a_head, HeadView<const T> x, HeadView<T> out) {
  const int rows_a_block = broadcast_threads / lanes;
  const auto H = uint32_t(p.size.H);
  const uint32_t batch_head = blockIdx.x / blocks_a_head, b = batch_head / H, h = batch_head % H;
  const int64_t i = int64_t(blockIdx.x % blocks_a_head) * rows_a_block + int(threadIdx.x) / lanes;
  if (i >= p.size.N) return;
  const int32_t c = p.clusters.labels[batch_head * p.size.N + i];
  const bool in_cluster = c >= 0 && c < p.size.C;
  const float factor = in_cluster ? p.factor(p.offset(batch_head, c)[1] - p.offset(batch_head, c)[0]) : 0;
  for (int64_t at = int(threadIdx.x) % lanes; at < p.packs; at += lanes) {
    Pack<T, width>& to = pack<width>(out.at(b, i, h), at);
    Pack<T, width> value{}, before{};
    if (in_cluster) value = pack<width>(x.at(b, c, h), at);
    if (p.add) before = to;
    for (int k = 0; k < width; ++k)
      value.element[k] = T(fmaf(float(value.element[k]), factor, float(before.element[k])));
    to = value;
  }
}

template <int width, class T>
void reduce(Stream stream, ClusterProblem p, HeadView<const T> x, HeadView<T> out) {
  const int64_t columns = std::min(max_threads, int64_t(std::bit_ceil(uint64_t(p.packs))));
  const auto wanted = int64_t(std::bit_ceil(uint64_t(columns * p.size.N / p.size.C / 4)));
  const int64_t threads = std::clamp(wanted, std::max(columns, min_threads), max_threads);
  launch(
      reduce_cluster<T, width>,
      overlapped({p.size.B * p.size.H * p.size.C, unsigned(threads), size_t(threads) * width * sizeof(float), stream}),
      p, int(columns), x, out);
}

template <int width, class T>
void broadcast(Stream stream, ClusterProblem p, HeadView<const T> x, HeadView<T> out) {
  const int64_t lanes = std::min(int64_t{32}, int64_t(std::bit_ceil(uint64_t(p.packs))));
  const int64_t blocks_a_head = ceil_div(p.size.N, broadcast_threads / lanes);
  launch(broadcast_rows<T, width>, {p.size.B * p.size.H * blocks_a_head, broadcast_threads, 0, stream}, p, int(lanes),
         uint32_t(blocks_a_head), x, out);
}

}  // namespace

template <class T>
void cluster_reduce(Stream stream, Reduce kind, ClusterSizes size, int64_t D, ClusterView clusters, HeadView<const T> x,
                    HeadView<T> out) {
  if (size.B * size.H * size.C * D == 0) return;
  constexpr int width = 16 / sizeof(T);
  if (D % width == 0 && holds_packs<width>(x) && holds_packs<width>(out))
    reduce<width>(stream, {kind, size, D / width, clusters}, x, out);
  else
    reduce<1>(stream, {kind, size, D, clusters}, x, out);
}

template <class T>
void cluster_broadcast(Stream stream, Reduce kind, ClusterSizes size, int64_t D, ClusterView clusters,
                       HeadView<const T> x, HeadView<T> out, bool add) {
  if (size.B * size.H * size.N * D == 0) return;
  constexpr int width = 16 / sizeof(T);
  if (D % width == 0 && holds_packs<width>(x) && holds_packs<width>(out))
    broadcast<width>(stream, {kind, size, D / width, clusters, add}, x, out);
  else
    broadcast<1>(stream, {kind, size, D, clusters, add}, x, out);
}

CAIRN_GPU_TYPES(cluster_reduce)
CAIRN_GPU_TYPES(cluster_broadcast)

}  // namespace cairn::gpu
