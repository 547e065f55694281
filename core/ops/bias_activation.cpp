#include "core/ops.h"

#include "core/dispatch.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  const Sizes s = expect("bias_activation", {{"x", x, "*R C"}, {"bias", bias, "C"}});
  Tensor y = empty_like(x);
  CAIRN_RUN(
      "bias_activation", x,
      bias_activation_forward<T>(stream, activation, rows_of(s), x.data<T>(), bias.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor bias_activation_backward(const Tensor& x, const Tensor& bias, Activation activation, const Tensor& dy) {
  const Sizes s = expect("bias_activation", {{"x", x, "*R C"}, {"bias", bias, "C"}, {"the gradient", dy, "*R C"}});
  Tensor dx = empty_like(x);
  CAIRN_RUN("bias_activation", x,
            bias_activation_backward<T>(stream, activation, rows_of(s), x.data<T>(), bias.data<T>(), dy.data<T>(),
                                        dx.mutable_data<T>()));
  return dx;
}

}  // namespace cairn
