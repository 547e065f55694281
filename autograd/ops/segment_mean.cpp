#include "autograd/ops.h"

namespace cairn {

// Equation 3:  Q^c_j = mean of Q_i over cluster j;  dQ_i = dQ^c_j / count_j.
Variable segment_mean(const Variable& x, const Groups& groups) {
  const auto gradient = [groups](const Gradients& g, const Gradients& sums) -> Gradients {
    const bool add = sums[0].defined();  // attention over the top keys has already added its part
    const Tensor dx = segment_broadcast(Segment::mean, g[0], groups, sums[0]);
    return {add ? Tensor() : dx};
  };
  return record_outputs("segment_mean", {segment_reduce(Segment::mean, x.value(), groups)}, {x}, gradient)[0];
}

// Equation 6:  V_i = V^c_j for every member i of cluster j;  dV^c_j = sum of dV_i.
Variable segment_broadcast(const Variable& x, const Groups& groups) {
  return record("segment_broadcast", segment_broadcast(Segment::sum, x.value(), groups), {x},
                [groups](const Tensor& g) -> Gradients { return {segment_reduce(Segment::sum, g, groups)}; });
}

}  // namespace cairn
