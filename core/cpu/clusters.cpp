#include "core/kernels/clusters.h"

#include <algorithm>

#include "core/parallel.h"

namespace cairn::cpu {

void sort_by_label(Stream, ClusterSizes size, const int32_t* labels, int32_t* permutation, int32_t* offsets) {
  const int64_t N = size.N, C = size.C;
  parallel_tasks(size.B * size.H, [=](int64_t batch_head) {
    const int32_t* label = labels + batch_head * N;
    int32_t* offset = offsets + batch_head * (C + 1);
    // [lesson 7
    const auto in_cluster = [=](int64_t i) { return label[i] >= 0 && label[i] < C; };
    // Count the members of cluster c in offset[c + 1]; running sums turn the counts into the clusters' beginnings.
    std::fill_n(offset, C + 1, 0);
    for (int64_t i = 0; i < N; ++i)
      if (in_cluster(i)) ++offset[label[i] + 1];
    for (int64_t c = 0; c < C; ++c) offset[c + 1] += offset[c];
    // Each member moves its cluster's offset on by one, in the end to the next cluster's beginning. So shift all back.
    int32_t outside = offset[C];
    for (int64_t i = 0; i < N; ++i)
      permutation[batch_head * N + (in_cluster(i) ? offset[label[i]]++ : outside++)] = int32_t(i);
    for (int64_t c = C; c > 0; --c) offset[c] = offset[c - 1];
    offset[0] = 0;
    // lesson 7]
  });
}

void list_members(Stream, ClusterSizes size, int64_t width, ClusterView clusters, int32_t* members) {
  parallel_tasks(size.B * size.H, [=](int64_t batch_head) {
    const int32_t* const offsets = clusters.offsets + batch_head * (size.C + 1);
    for (int64_t c = 0; c < size.C; ++c) {
      int32_t* const list = members + (batch_head * size.C + c) * width;
      const int64_t count = std::min<int64_t>(width, offsets[c + 1] - offsets[c]);
      std::copy_n(clusters.permutation + batch_head * size.N + offsets[c], count, list);
      std::fill_n(list + count, width - count, -1);
    }
  });
}

void position_labels(Stream, ClusterSizes size, const int32_t* lengths, bool shift, int32_t* labels) {
  parallel_tasks(size.B * size.H, [=](int64_t batch_head) {
    const int64_t n = lengths ? lengths[batch_head / size.H] : size.N;
    for (int64_t i = 0; i < size.N; ++i)
      labels[batch_head * size.N + i] = i < n ? position_label(i, n, size.C, shift) : -1;
  });
}

}  // namespace cairn::cpu
