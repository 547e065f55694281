#include "core/ops.h"

#include "core/dispatch.h"
#include "core/ops/checks.h"

namespace cairn {

// Checks x and bias; the rows of x.
static Rows check_bias(const Tensor& x, const Tensor& bias) {
  check_operands("bias_activation", {{"x", x}, {"bias", bias}});
  const Rows size = filled_rows_of("bias_activation", x);
  check_shape("bias_activation", "bias", bias, {size.cols});
  return size;
}

Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  const Rows size = check_bias(x, bias);
  Tensor y = like(x);
  CAIRN_RUN("bias_activation", x,
            bias_activation_forward<T>(stream, activation, size, x.data<T>(), bias.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor bias_activation_backward(const Tensor& x, const Tensor& bias, Activation activation, const Tensor& dy) {
  const Rows size = check_bias(x, bias);
  check_operands("bias_activation", {{"x", x}, {"the gradient", dy}});
  check_shape("bias_activation", "the gradient", dy, x.shape());
  Tensor dx = like(x);
  CAIRN_RUN("bias_activation", x,
            bias_activation_backward<T>(stream, activation, size, x.data<T>(), bias.data<T>(), dy.data<T>(),
                                        dx.mutable_data<T>()));
  return dx;
}

}  // namespace cairn
