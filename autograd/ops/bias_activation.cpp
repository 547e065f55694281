#include "autograd/ops.h"

namespace cairn {

// y = f(x + b):  dx = f'(x + b) dy,  db = the sum of dx over rows (by the tape). x + b is not saved.
Variable bias_activation(const Variable& x, const Variable& bias, Activation activation) {
  return record(
      "bias_activation", bias_activation(x.value(), bias.value(), activation), {x, bias},
      [activation, x = SavedTensor(x.value()), bias = SavedTensor(bias.value())](const Tensor& g) -> Gradients {
        const Tensor dx = bias_activation_backward(x(), bias(), activation, g);
        return {dx, dx};
      });
}

}  // namespace cairn
