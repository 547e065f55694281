#include "core/kernels/cluster_mean.h"

#include "autograd/ops/improved_clustered.h"
#include "core/ops/attention_checks.h"

namespace cairn {

// Sum or mean of x [B, N, H, D] over each cluster: [B, C, H, D].
static Tensor reduce(const char* operation, Reduce kind, const Tensor& x, const Clusters& clusters) {
  const Sizes s = expect(operation, {{"x", x, "B N H D"}});
  clusters.check(operation, {s['B'], s['H'], s['N']}, x.device());
  Tensor y(x.shape().with(1, clusters.count()), x.dtype(), x.device());
  CAIRN_RUN(operation, x,
            cluster_reduce<T>(stream, kind, sizes(clusters), s['D'], view(clusters), head_view<T>(x), head_view<T>(y)));
  return y;
}

// Each query gets its cluster's row of x [B, C, H, D], with `mean` divided by the cluster's size: [B, N, H, D]. If y is
// defined, adds to it in place: copies of a tensor share its storage.
static Tensor broadcast(const char* operation, Reduce kind, const Tensor& x, const Clusters& clusters, Tensor y = {}) {
  const Sizes s = expect(operation, {{"x", x, "B C H D"},
                                     of_type(DType::int32, "labels", clusters.labels(), "B H N"),
                                     optional({"the sum", y, "B N H D"})});
  clusters.check(operation, clusters.labels().shape(), x.device());
  check(s['C'] == clusters.count(), operation, ": expected x of shape ", x.shape().with(1, clusters.count()), ", got ",
        x.shape());
  const bool add = y.defined();
  if (!add) y = Tensor(x.shape().with(1, s['N']), x.dtype(), x.device());
  CAIRN_RUN(operation, x,
            cluster_broadcast<T>(stream, kind, sizes(clusters), s['D'], view(clusters), head_view<T>(x),
                                 head_view<T>(y), add));
  return y;
}

// Equation 3:  Q^c_j = mean of Q_i over cluster j;  dQ_i = dQ^c_j / count_j.
Variable cluster_mean(const Variable& x, const Clusters& clusters) {
  return record(
      "cluster_mean", reduce("cluster_mean", Reduce::mean, x, clusters), {x},
      [clusters](const Tensor& g) -> Gradients { return {broadcast("cluster_mean", Reduce::mean, g, clusters)}; });
}
void cluster_mean_backward(const Tensor& dmean, const Clusters& clusters, Tensor& dx) {
  broadcast("cluster_mean", Reduce::mean, dmean, clusters, dx);
}

// Equation 6:  V_i = V^c_j for every member i of cluster j;  dV^c_j = sum of dV_i.
Variable cluster_broadcast(const Variable& x, const Clusters& clusters) {
  return record(
      "cluster_broadcast", broadcast("cluster_broadcast", Reduce::sum, x, clusters), {x},
      [clusters](const Tensor& g) -> Gradients { return {reduce("cluster_broadcast", Reduce::sum, g, clusters)}; });
}

}  // namespace cairn
