#include <utility>

#include "autograd/ops.h"

namespace cairn {

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double epsilon) {
  LayerNorm kept = layer_norm(x.value(), weight.value(), bias.value(), epsilon);
  const Tensor y = std::move(kept.y);  // the gradient does not need it
  return record("layer_norm", y, {x, weight, bias},
                [x = Saved(x.value()), weight = Saved(weight.value()), kept](const Tensor& g) -> Gradients {
                  auto [dx, dweight, dbias] = layer_norm_backward(x(), weight(), kept, g);
                  return {dx, dweight, dbias};
                });
}

}  // namespace cairn
