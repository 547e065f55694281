#include "core/kernels/cluster_mean.h"

#include "autograd/ops/improved_clustered.h"
#include "core/ops/attention_checks.h"

namespace cairn {

// Sum or mean of x [B, N, H, D] over each cluster: [B, C, H, D].
static Tensor reduce(const char* operation, Reduce kind, const Tensor& x, const Groups& groups) {
  const Sizes s = expect(operation, {{"x", x, "B N H D"}});
  groups.check(operation, {s['B'], s['H'], s['N']}, x.device());
  Tensor y(x.shape().with(1, groups.clusters()), x.dtype(), x.device());
  CAIRN_RUN(
      operation, x,
      cluster_reduce<T>(stream, kind, group_size(groups), s['D'], view(groups), head_view<T>(x), head_view<T>(y)));
  return y;
}

// Each query gets its cluster's row of x [B, C, H, D], with `mean` divided by the cluster's size: [B, N, H, D]. If y is
// defined, adds to it in place.
static Tensor broadcast(const char* operation, Reduce kind, const Tensor& x, const Groups& groups, Tensor y = {}) {
  const Sizes s = expect(operation, {{"x", x, "B C H D"},
                                     of_type(DType::int32, "labels", groups.labels(), "B H N"),
                                     optional({"the sum", y, "B N H D"})});
  groups.check(operation, groups.labels().shape(), x.device());
  check(s['C'] == groups.clusters(), operation, ": expected x of shape ", x.shape().with(1, groups.clusters()),
        ", got ", x.shape());
  const bool add = y.defined();
  if (!add) y = Tensor(x.shape().with(1, s['N']), x.dtype(), x.device());
  CAIRN_RUN(operation, x,
            cluster_broadcast<T>(stream, kind, group_size(groups), s['D'], view(groups), head_view<T>(x),
                                 head_view<T>(y), add));
  return y;
}

// Equation 3:  Q^c_j = mean of Q_i over cluster j;  dQ_i = dQ^c_j / count_j.
Variable cluster_mean(const Variable& x, const Groups& groups) {
  return record(
      "cluster_mean", reduce("cluster_mean", Reduce::mean, x.value(), groups), {x},
      [groups](const Tensor& g) -> Gradients { return {broadcast("cluster_mean", Reduce::mean, g, groups)}; });
}
void cluster_mean_backward(const Tensor& dmean, const Groups& groups, Tensor& dx) {
  broadcast("cluster_mean", Reduce::mean, dmean, groups, dx);
}

// Equation 6:  V_i = V^c_j for every member i of cluster j;  dV^c_j = sum of dV_i.
Variable cluster_broadcast(const Variable& x, const Groups& groups) {
  return record(
      "cluster_broadcast", broadcast("cluster_broadcast", Reduce::sum, x.value(), groups), {x},
      [groups](const Tensor& g) -> Gradients { return {reduce("cluster_broadcast", Reduce::sum, g, groups)}; });
}

}  // namespace cairn
