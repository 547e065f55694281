#include "autograd/ops.h"

namespace cairn {

Variable reshape(const Variable& x, const Shape& shape) {
  return record("reshape", x.value().reshape(shape), {x},
                [from = x.shape()](const Tensor& g) -> Gradients { return {g.reshape(from)}; });
}

// The tape sums the gradient back to x's shape.
Variable broadcast_to(const Variable& x, const Shape& shape) {
  return record("broadcast_to", broadcast_to(x.value(), shape), {x}, [](const Tensor& g) -> Gradients { return {g}; });
}

Variable sum(const Variable& x) {
  return record("sum", sum_all(x.value()), {x},
                [from = x.shape()](const Tensor& g) -> Gradients { return {broadcast_to(g, from)}; });
}

Variable sum(const Variable& x, int axis) {
  const Shape saved = x.shape().with(axis, 1);
  return record(
      "sum", reduce(Reduce::sum, x.value(), axis), {x},
      [saved, from = x.shape()](const Tensor& g) -> Gradients { return {broadcast_to(g.reshape(saved), from)}; });
}

Variable mean(const Variable& x) { return (1.0 / double(x.value().elements())) * sum(x); }
Variable mean(const Variable& x, int axis) { return (1.0 / double(x.size(axis))) * sum(x, axis); }

}  // namespace cairn
