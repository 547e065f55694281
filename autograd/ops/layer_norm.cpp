#include <utility>

#include "autograd/ops.h"

namespace cairn {

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double epsilon) {
  LayerNormResult saved = layer_norm(x.value(), weight.value(), bias.value(), epsilon);
  const Tensor y = std::move(saved.y);  // the gradient does not need it
  return record(
      "layer_norm", y, {x, weight, bias},
      [x = SavedTensor(x.value()), weight = SavedTensor(weight.value()), saved](const Tensor& g) -> Gradients {
        auto [dx, dweight, dbias] = layer_norm_backward(x(), weight(), saved, g);
        return {dx, dweight, dbias};
      });
}

}  // namespace cairn
