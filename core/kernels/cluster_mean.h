#pragma once
// From queries to their clusters and back: means, sums and copies over clusters.
#include "core/kernels/clusters.h"
#include "core/kernels/head_view.h"

namespace cairn {

enum class Reduce { sum, mean };

CAIRN_KERNELS(
    // out[c] = sum or mean of x over the members of cluster c (equation 3); 0 for a cluster without members.
    // x [B, N, H, D], out [B, C, H, D].
    template <class T>
    void cluster_reduce(Stream, Reduce, ClusterSizes, int64_t D, ClusterView, HeadView<const T> x, HeadView<T> out);
    // out[i] = x[label of i], with `mean` divided by the size of the cluster; 0 if the label is -1 (equation 6). With
    // `add`, it adds to out instead. x [B, C, H, D], out [B, N, H, D]. The two kernels are each other's gradients.
    template <class T> void cluster_broadcast(Stream, Reduce, ClusterSizes, int64_t D, ClusterView, HeadView<const T> x,
                                              HeadView<T> out, bool add);)

}  // namespace cairn
