#include "core/kernels/cluster_mean.h"

#include <algorithm>

#include "core/cpu/vector.h"
#include "core/parallel.h"
#include "core/workspace.h"

namespace cairn::cpu {

// [eq. 3] [grad. 6]
template <class T>
void cluster_reduce(Stream, Reduce kind, ClusterSizes size, int64_t D, ClusterView clusters, HeadView<const T> x,
                    HeadView<T> out) {
  const int64_t H = size.H, N = size.N, C = size.C;
  parallel_for(size.B * H * C, 8, [=](int64_t begin, int64_t end) {
    for (int64_t cluster = begin; cluster < end; ++cluster) {
      const int64_t batch_head = cluster / C, b = batch_head / H, h = batch_head % H, c = cluster % C;
      const int32_t *offset = clusters.offsets + batch_head * (C + 1) + c, count = offset[1] - offset[0];
      T* sum = out.at(b, c, h);
      // [lesson 7
      std::fill_n(sum, D, T(0));
      for (int32_t member = offset[0]; member < offset[1]; ++member)
        add_scaled(sum, D, T(1), x.at(b, clusters.permutation[batch_head * N + member], h));
      if (kind == Reduce::mean && count > 0) scale(sum, D, 1 / T(count));
      // lesson 7]
    }
  });
}

// [eq. 6] [grad. 3]
template <class T>
void cluster_broadcast(Stream, Reduce kind, ClusterSizes size, int64_t D, ClusterView clusters, HeadView<const T> x,
                       HeadView<T> out, bool add) {
  const int64_t H = size.H, N = size.N, C = size.C;
  parallel_for(size.B * H * N, 64, [=](int64_t begin, int64_t end) {
    thread_local Scratch<T> scratch;  // the summand, rounded before it is added
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch_head = row / N, b = batch_head / H, h = batch_head % H, c = clusters.labels[row];
      T *sum = out.at(b, row % N, h), *share = add ? scratch.take(D) : sum;
      // [lesson 7
      std::fill_n(share, D, T(0));
      if (c < 0 || c >= C) continue;
      const int32_t* offset = clusters.offsets + batch_head * (C + 1) + c;
      add_scaled(share, D, kind == Reduce::mean ? 1 / T(offset[1] - offset[0]) : T(1), x.at(b, c, h));
      if (add) add_scaled(sum, D, T(1), share);
      // lesson 7]
    }
  });
}

CAIRN_CPU_TYPES(cluster_reduce)
CAIRN_CPU_TYPES(cluster_broadcast)

}  // namespace cairn::cpu
