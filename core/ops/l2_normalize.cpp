#include "core/attention_ops.h"

#include "core/dispatch.h"
#include "core/kernels/l2_normalize.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor l2_normalize(const Tensor& x) {
  check_operands("l2_normalize", {{"x", x}});
  const Rows size = filled_rows_of("l2_normalize", x);
  Tensor y = like(x);
  CAIRN_RUN("l2_normalize", x, l2_normalize<T>(stream, size, x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor l2_normalize_backward(const Tensor& x, const Tensor& dy) {
  check_operands("l2_normalize", {{"x", x}, {"the gradient", dy}});
  check_shape("l2_normalize", "the gradient", dy, x.shape());
  const Rows size = filled_rows_of("l2_normalize", x);
  Tensor dx = like(x);
  CAIRN_RUN("l2_normalize", x, l2_normalize_backward<T>(stream, size, x.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

}  // namespace cairn
