#pragma once
// How the gradients of keys and values of topk_attention are put together from the parts that tasks have: the order in
// which parts are stored, and their sums.
#include "cuda/topk_problem.cuh"

namespace cairn::gpu {

// ---- the order of the parts

inline constexpr int place_warps = 8, place_threads = 32 * place_warps, keys_each = 4,
                     place_keys = keys_each * place_threads;

// A counting sort of the parts by key. The parts of one key are ordered by warp, then by piece of 32 top keys, then by
// cluster, then by task. The keys of one top differ, so a warp that takes one cluster after another needs neither
// atomics nor votes.
template <class T>
__global__ void __launch_bounds__(place_threads) place_parts(TopKProblem<T> p, Parts parts) {
  constexpr int at_once = 4;
  __shared__ __align__(16) int counts[place_warps][place_keys];
  __shared__ int of_warp[place_warps];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), S = int(p.size.S);
  const unsigned ranges = unsigned(max(ceil_div(p.size.S, place_keys), int64_t{1}));
  const int first_key = int(blockIdx.x % ranges) * place_keys, batch_head = int(blockIdx.x / ranges);
  const int32_t* const offsets = p.offsets(batch_head);
  const int64_t first_entry = int64_t(batch_head) * p.C * p.top;
  const int clusters = (p.C + place_warps - 1) / place_warps;  // of a warp
  const int first = min(warp * clusters, p.C), last = min(first + clusters, p.C);
  // Calls f(entry, key, tasks) for the top keys of the warp's clusters.
  const auto each_entry = [&](auto f) {
#pragma unroll 1
    for (int l = lane; l - lane < p.top; l += 32)
#pragma unroll 1
      for (int c0 = first; c0 < last; c0 += at_once) {
        int key[at_once], begin[at_once], end[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int c = min(c0 + i, last - 1);
          key[i] = p.topk[first_entry + c * p.top + min(l, p.top - 1)];
          begin[i] = offsets[c], end[i] = offsets[c + 1];
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int tasks = p.tasks_of(begin[i], end[i]);
          if (c0 + i < last && l < p.top && tasks > 0 && key[i] >= 0) f((c0 + i) * p.top + l, key[i], tasks);
          __syncwarp();  // the next cluster may have the same keys
        }
      }
  };
  using Keys = Pack<int, keys_each>;  // of this thread
  const int own = int(threadIdx.x);
#pragma unroll
  for (int w = 0; w < place_warps; ++w) pack<keys_each>(counts[w], own) = Keys{};
  __syncthreads();
  int before = 0;  // parts of keys before this range
  each_entry([&](int, int key, int tasks) {
    if (key < first_key) before += tasks;
    if (unsigned(key - first_key) < unsigned(place_keys)) counts[warp][key - first_key] += tasks;
  });
  before = block_reduce(before, 0, Sum{});
  int total = 0;
#pragma unroll
  for (int w = 0; w < place_warps; ++w) {
    const Keys count = pack<keys_each>(counts[w], own);
    for (int i = 0; i < keys_each; ++i) total += count.element[i];
  }
  const int sum = warp_scan(total);
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int start = before + sum - total;
#pragma unroll
  for (int w = 0; w < place_warps; ++w) start += w < warp ? of_warp[w] : 0;
  int32_t* const starts = parts.starts + int64_t(batch_head) * (S + 1);
#pragma unroll
  for (int i = 0; i < keys_each; ++i) {
    const int key = first_key + keys_each * own + i;
    if (key < S) starts[key] = start;
#pragma unroll
    for (int w = 0; w < place_warps; ++w) {
      int& place = counts[w][keys_each * own + i];
      const int count = place;
      place = start;
      start += count;
    }
    if (key == S - 1) starts[S] = start;
  }
  __syncthreads();
  each_entry([&](int entry, int key, int tasks) {
    if (unsigned(key - first_key) >= unsigned(place_keys)) return;
    parts.places[first_entry + entry] = counts[warp][key - first_key];
    counts[warp][key - first_key] += tasks;
  });
}

// ---- their sums

inline constexpr int sum_warps = 8, keys_of_warp = 8, sum_keys = sum_warps * keys_of_warp;
inline constexpr int sum_rows = 4;    // loads under way at a time
inline constexpr int most_rows = 32;  // of a key that a warp sums up by itself

// sum += every `step`th of a batch_head's parts from `begin` on. They are `columns` apart.
template <int width>
__device__ void add_parts(const float* parts, int64_t columns, int begin, int end, int step, float (&sum)[width]) {
#pragma unroll 1
  for (int row = begin; row < end; row += sum_rows * step) {
    Pack<float, width> x[sum_rows] = {};
#pragma unroll
    for (int i = 0; i < sum_rows; ++i) {
      const Pack<float, width>& part = pack<width>(parts + (row + i * step) * columns, 0);
      if (row + i * step < end) x[i] = part;
    }
#pragma unroll
    for (int i = 0; i < sum_rows; ++i)
#pragma unroll
      for (int e = 0; e < width; ++e) sum[e] += x[i].element[e];
  }
}

// width: of the columns that move as one.
template <class T, int width>
__global__ void __launch_bounds__(32 * sum_warps)
    topk_key_gradient(TopKProblem<T> p, Parts parts, HeadView<T> dk, HeadView<T> dv, T* dmass) {
  __shared__ float shares[sum_warps][32 * width];
  __shared__ int starts[sum_keys + 1];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const unsigned S = unsigned(p.size.S), C = unsigned(p.C), H = unsigned(p.size.H), heads = unsigned(parts.batch_heads);
  const unsigned column_parts = unsigned(ceil_div(p.size.D + p.size.M, 32 * width));
  const unsigned key_blocks = (S + sum_keys - 1) / sum_keys * column_parts;
  if (blockIdx.x >= key_blocks * heads) {  // dm: a warp sums up what a cluster's tasks found
    const unsigned row = (blockIdx.x - key_blocks * heads) * sum_warps + unsigned(warp);
    if (row >= C * heads) return;
    const int64_t batch_head = parts.first_batch_head + row / C;
    const int c = int(row % C), *const offsets = p.offsets(batch_head), tasks = p.tasks_of(offsets[c], offsets[c + 1]);
    const float* const deltas = parts.deltas + batch_head * p.tasks() + p.first_task(offsets, c);
    float sum = 0;
#pragma unroll 1
    for (int task = lane; task < tasks; task += 32) sum += deltas[task];
    sum = warp_reduce(sum, Sum{});
    if (lane == 0) dmass[batch_head * C + c] = T(sum);  // dm_j
    return;
  }
  const unsigned batch_head = unsigned(parts.first_batch_head) + blockIdx.x / key_blocks;
  const int first_key = int(blockIdx.x % key_blocks / column_parts) * sum_keys;
  const int column = int(blockIdx.x % column_parts) * 32 * width + lane * width;
  const int64_t columns = p.size.D + p.size.M;
  const bool has_column = column < columns;
  const float* const rows = parts.row(p, batch_head, 0) + (has_column ? column : 0);
  const bool of_values = column >= p.D();
  T* const to = of_values ? dv.at(batch_head / H, first_key, batch_head % H) + column - p.D()
                          : dk.at(batch_head / H, first_key, batch_head % H) + column;
  const int64_t row_stride = of_values ? dv.row_stride : dk.row_stride;
  const auto write = [&](int key, const float(&sum)[width]) {
    Pack<T, width> result;
#pragma unroll
    for (int e = 0; e < width; ++e) result.element[e] = T(sum[e]);
    if (has_column) pack<width>(to + key * row_stride, 0) = result;
  };
  if (threadIdx.x <= sum_keys)
    starts[threadIdx.x] = parts.starts[int64_t(batch_head) * (S + 1) + min(first_key + int(threadIdx.x), int(S))];
  __syncthreads();

  const int keys = min(sum_keys, int(S) - first_key);
  int popular = 0;
#pragma unroll 1
  for (int key = warp * keys_of_warp; key < min((warp + 1) * keys_of_warp, keys); ++key) {
    const int begin = starts[key], end = starts[key + 1];
    if (end - begin > most_rows) {
      popular = 1;
      continue;
    }
    float sum[width] = {};
    add_parts(rows, columns, begin, end, 1, sum);
    write(key, sum);
  }
  if (!__syncthreads_or(popular)) return;
#pragma unroll 1
  for (int key = 0; key < keys; ++key) {  // all warps share the rows of a popular key
    if (starts[key + 1] - starts[key] <= most_rows) continue;
    float sum[width] = {};
    add_parts(rows, columns, starts[key] + warp, starts[key + 1], sum_warps, sum);
#pragma unroll
    for (int e = 0; e < width; ++e) shares[warp][lane * width + e] = sum[e];
    __syncthreads();
    if (warp == 0) {
      for (int w = 1; w < sum_warps; ++w)
#pragma unroll
        for (int e = 0; e < width; ++e) sum[e] += shares[w][lane * width + e];
      write(key, sum);
    }
    __syncthreads();  // they are written again
  }
}

}  // namespace cairn::gpu
