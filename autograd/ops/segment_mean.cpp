#include "autograd/ops.h"

namespace cairn {

// Equation 3:  Q^c_j = mean of Q_i over cluster j;  dQ_i = dQ^c_j / count_j.
Variable segment_mean(const Variable& x, const Groups& groups) {
  return record("segment_mean", segment_reduce(Segment::mean, x.value(), groups), {x},
                [groups](const Tensor& g) -> Gradients { return {segment_broadcast(Segment::mean, g, groups)}; });
}

// Equation 6:  V_i = V^c_j for every member i of cluster j;  dV^c_j = sum of dV_i.
Variable segment_broadcast(const Variable& x, const Groups& groups) {
  return record("segment_broadcast", segment_broadcast(Segment::sum, x.value(), groups), {x},
                [groups](const Tensor& g) -> Gradients { return {segment_reduce(Segment::sum, g, groups)}; });
}

}  // namespace cairn
