#pragma once
// Splits of the keys. Few queries, such as the centroids of clustered attention, give too few tiles to fill a GPU. Then
// several blocks share a tile of queries, and each takes one split of the keys. Their results are added in the order of
// the splits.
#include <algorithm>
#include <cmath>

#include "core/workspace.h"
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {

struct Splits {
  int count = 1;
  float* partial = nullptr;       // [count, B, H, N, columns]: the sums of each split
  RowSoftmax* softmax = nullptr;  // forward, [count, B, H, N]
};

// Adds the results of the splits in their order, and normalizes them. A warp takes a query.
template <class T>
__global__ void __launch_bounds__(row_threads<32>, 8)
    combine_splits(AttentionSize size, float dropout_scale, Splits splits, HeadView<T> out, float* logsumexp) {
  const int64_t rows = size.B * size.H * size.N;
  each_row<32>(rows, [&](int64_t row) {
    const int lane = int(threadIdx.x % 32);
    const auto of_split = [&](int split) { return splits.softmax[split * rows + row]; };
    const RowSoftmax softmax = join_softmax(splits.count, of_split);
    const float factor = softmax.sum == 0 ? 0.0f : dropout_scale / softmax.sum;
    // Keys are split only where rows are few, so 32 bits suffice. They divide faster.
    const auto N = uint32_t(size.N), H = uint32_t(size.H), batch_head = uint32_t(row) / N;
    T* const to = out.at(batch_head / H, uint32_t(row) % N, batch_head % H);
#pragma unroll 1
    for (int64_t c0 = 0; c0 < size.M; c0 += 32) {
      const int64_t c = min(c0 + lane, size.M - 1);
      float sum = 0;
#pragma unroll 1
      for (int s0 = 0; s0 < splits.count; s0 += 32) {
        const float maximum = of_split(min(s0 + lane, splits.count - 1)).maximum;
        const float weight = exp2_approx(maximum - finite_shift(softmax.maximum));
#pragma unroll 8
        for (int i = 0; i < min(32, splits.count - s0); ++i)
          sum = fmaf(splits.partial[((s0 + i) * rows + row) * size.M + c], __shfl_sync(full_warp, weight, i), sum);
      }
      if (c0 + lane < size.M) to[c] = T(factor == 0 ? 0.0f : sum * factor);
    }
    if (lane == 0) logsumexp[row] = softmax.logsumexp();
  });
}

// out = the sum of partial [splits, B, H, N, columns] over the splits, in their order. A warp takes a query.
template <class T>
__global__ void __launch_bounds__(row_threads<32>)
    add_splits(AttentionSize size, int splits, int64_t columns, const float* partial, HeadView<T> out) {
  const int64_t rows = size.B * size.H * size.N;
  each_row<32>(rows, [&](int64_t row) {
    const auto N = uint32_t(size.N), H = uint32_t(size.H), batch_head = uint32_t(row) / N;  // as in combine_splits
    T* const to = out.at(batch_head / H, uint32_t(row) % N, batch_head % H);
    for (int64_t c = threadIdx.x % 32; c < columns; c += 32) {
      float sum = 0;
      for (int s = 0; s < splits; ++s) sum += partial[(s * rows + row) * columns + c];
      to[c] = T(sum);
    }
  });
}

// The fewest splits that give 384 blocks, about three for each multiprocessor of an H100. A split has at least
// `shortest` keys. Depends on the shape alone, so that sums have the same order on every GPU that runs the kernel.
inline int64_t count_splits(int64_t blocks, int64_t S, int64_t shortest) {
  return std::clamp<int64_t>(ceil_div(384, std::max<int64_t>(1, blocks)), 1, std::max<int64_t>(1, S / shortest));
}

// The splits for blocks of `tile_rows` queries. If there are several, with memory for sums of `columns`. A causal mask
// or a pattern skips tiles already, so there keys are not split.
template <class T>
Splits split_keys(const AttentionProblem<T>& p, int tile_rows, int64_t columns, Workspace& workspace) {
  const int64_t rows = p.size.B * p.size.H * p.size.N;
  const int64_t count =
      p.mask.all() ? count_splits(p.size.B * p.size.H * ceil_div(p.size.N, tile_rows), p.size.S, 256) : 1;
  if (count == 1 || rows * columns == 0) return {};
  return {int(count), workspace.take<float>(count * rows * columns)};
}

// out = the sum of the splits, if there are several.
template <class T>
void add_up(Stream stream, const AttentionSize& size, const Splits& splits, int64_t columns, HeadView<T> out) {
  if (splits.partial)
    launch(add_splits<T>, over_rows<32>(stream, size.B * size.H * size.N), size, splits.count, columns, splits.partial,
           out);
}

}  // namespace cairn::gpu
