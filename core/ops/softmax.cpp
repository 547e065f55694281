#include "core/ops.h"

#include "core/dispatch.h"
#include "core/kernels/softmax.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor softmax(const Tensor& x) {
  check_operands("softmax", {{"x", x}});
  const Rows size = filled_rows_of("softmax", x);
  Tensor y = like(x);
  CAIRN_RUN("softmax", x, softmax_forward<T>(stream, size, x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  check_operands("softmax", {{"y", y}, {"its gradient", dy}});
  check_shape("softmax", "the gradient", dy, y.shape());
  const Rows size = filled_rows_of("softmax", y);
  Tensor dx = like(y);
  CAIRN_RUN("softmax", y, softmax_backward<T>(stream, size, y.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

}  // namespace cairn
