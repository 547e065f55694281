#pragma once
// The gradients of keys and values in topk_attention: sums of the parts that tasks have written.
#include "cuda/topk_problem.cuh"

namespace cairn::gpu {

inline constexpr int sum_warps = 8, keys_of_warp = 8, sum_keys = sum_warps * keys_of_warp;
inline constexpr int sum_rows = 4;           // loads in flight
inline constexpr int max_rows_of_warp = 32;  // of a key that a warp sums up by itself

// sum += every `step`th of the parts order[begin .. end), one after another. A part has `columns` floats. Each lane
// loads the index of one of 32 parts.
template <int width>
__device__ void add_parts(const float* parts, int64_t columns, const int32_t* order, int begin, int end, int step,
                          float (&sum)[width]) {
#pragma unroll 1
  for (int base = begin; base < end; base += 32 * step) {
    const int mine = base + int(threadIdx.x % 32) * step, part = mine < end ? order[mine] : 0;
#pragma unroll 1
    for (int first = 0; first < 32 && base + first * step < end; first += sum_rows) {
      Pack<float, width> x[sum_rows] = {};
#pragma unroll
      for (int i = 0; i < sum_rows; ++i) {
        const float* const row = parts + __shfl_sync(full_warp, part, first + i) * columns;
        if (base + (first + i) * step < end) x[i] = pack<width>(row, 0);
      }
#pragma unroll
      for (int i = 0; i < sum_rows; ++i)
#pragma unroll
        for (int e = 0; e < width; ++e) sum[e] += x[i].element[e];
    }
  }
}

// width: columns in one load.
template <class T, int width>
__global__ void __launch_bounds__(32 * sum_warps)
    topk_key_gradient(TopKProblem<T> p, Parts parts, HeadView<T> dk, HeadView<T> dv, T* dmass) {
  __shared__ float shares[sum_warps][32 * width];
  __shared__ int starts[sum_keys + 1];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const unsigned S = unsigned(p.size.S), C = unsigned(p.C), H = unsigned(p.size.H), heads = unsigned(parts.batch_heads);
  const unsigned column_parts = unsigned(ceil_div(p.size.D + p.size.M, 32 * width));
  const unsigned key_blocks = (S + sum_keys - 1) / sum_keys * column_parts;
  if (blockIdx.x >= key_blocks * heads) {  // dm: a warp adds the deltas of a cluster's tasks
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
  const unsigned in_round = batch_head - unsigned(parts.first_batch_head);
  const float* const rows = parts.rows + in_round * parts.each * columns + (has_column ? column : 0);
  const int32_t* const order = parts.order + in_round * parts.each;
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
    starts[threadIdx.x] = parts.starts[int64_t(in_round) * (S + 1) + min(first_key + int(threadIdx.x), int(S))];
  __syncthreads();

  const int keys = min(sum_keys, int(S) - first_key);
  int popular = 0;
#pragma unroll 1
  for (int key = warp * keys_of_warp; key < min((warp + 1) * keys_of_warp, keys); ++key) {
    const int begin = starts[key], end = starts[key + 1];
    if (end - begin > max_rows_of_warp) {
      popular = 1;
      continue;
    }
    float sum[width] = {};
    add_parts(rows, columns, order, begin, end, 1, sum);
    write(key, sum);
  }
  if (!__syncthreads_or(popular)) return;
#pragma unroll 1
  for (int key = 0; key < keys; ++key) {  // all warps share the rows of a popular key
    if (starts[key + 1] - starts[key] <= max_rows_of_warp) continue;
    float sum[width] = {};
    add_parts(rows, columns, order, starts[key] + warp, starts[key + 1], sum_warps, sum);
#pragma unroll
    for (int e = 0; e < width; ++e) shares[warp][lane * width + e] = sum[e];
    __syncthreads();
    if (warp == 0) {
      for (int w = 1; w < sum_warps; ++w)
#pragma unroll
        for (int e = 0; e < width; ++e) sum[e] += shares[w][lane * width + e];
      write(key, sum);
    }
    __syncthreads();  // before `shares` is written again
  }
}

}  // namespace cairn::gpu
