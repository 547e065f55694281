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

// out = `scale` times the sum of the splits, in their order. If they have a softmax of their own, the result is that of
// the whole row, with its logsumexp. A warp takes a query.
template <class T>
__global__ void __launch_bounds__(threads_a_block<32>, 8)
    add_splits(AttentionSize size, Splits splits, int64_t columns, float scale, HeadView<T> out, float* logsumexp) {
  const int64_t rows = size.B * size.H * size.N;
  each_row<32>(rows, [&](int64_t row) {
    RowSoftmax softmax{0, 1};
    if (splits.softmax) {
      softmax = join_softmax(splits.count, [&](int split) { return splits.softmax[split * rows + row]; });
      if (row_thread<32>() == 0) logsumexp[row] = softmax.logsumexp();
    }
    const float factor = softmax.sum == 0 ? 0.0f : scale / softmax.sum;
    // Keys are split only where rows are few, so 32 bits suffice. They divide faster.
    const auto N = uint32_t(size.N), H = uint32_t(size.H), batch_head = uint32_t(row) / N;
    T* const to = out.at(batch_head / H, uint32_t(row) % N, batch_head % H);
    for (int64_t c = row_thread<32>(); c < columns; c += 32) {
      float sum = 0;
#pragma unroll 8
      for (int s = 0; s < splits.count; ++s) {
        const int64_t part = s * rows + row;
        const float maximum = splits.softmax ? splits.softmax[part].maximum : 0.0f;
        sum = fmaf(splits.partial[part * columns + c], exp2_approx(maximum - finite_shift(softmax.maximum)), sum);
      }
      to[c] = T(factor == 0 ? 0.0f : sum * factor);
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

// Launches add_splits, if there are several splits.
template <class T>
void add_up(Stream stream, const AttentionSize& size, const Splits& splits, int64_t columns, HeadView<T> out,
            float scale = 1, float* logsumexp = nullptr) {
  if (splits.partial)
    launch(add_splits<T>, over_rows<32>(stream, size.B * size.H * size.N), size, splits, columns, scale, out,
           logsumexp);
}

}  // namespace cairn::gpu
