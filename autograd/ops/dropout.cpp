#include "autograd/ops.h"

namespace cairn {

// The mask is not saved: the gradient draws it again, with the same numbers.
Variable dropout(const Variable& x, double p, Draw draw) {
  if (p == 0) return x;
  return record("dropout", dropout(x.value(), p, draw), {x},
                [p, draw](const Tensor& g) -> Gradients { return {dropout(g, p, draw)}; });
}

Variable dropout_add(const Variable& x, double p, Draw draw, const Variable& residual) {
  if (p == 0) return residual + x;
  return record("dropout_add", dropout(x.value(), p, draw, residual.value()), {x, residual},
                [p, draw](const Tensor& g) -> Gradients {
                  return {dropout(g, p, draw), g};
                });
}

}  // namespace cairn
