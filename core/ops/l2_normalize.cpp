#include "core/attention_ops.h"

#include "core/dispatch.h"
#include "core/kernels/l2_normalize.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor l2_normalize(const Tensor& x) {
  const Sizes s = expect("l2_normalize", {{"x", x, "*R C"}});
  Tensor y = like(x);
  CAIRN_RUN("l2_normalize", x, l2_normalize<T>(stream, filled_rows(s), x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor l2_normalize_backward(const Tensor& x, const Tensor& dy) {
  const Sizes s = expect("l2_normalize", {{"x", x, "*R C"}, {"the gradient", dy, "*R C"}});
  Tensor dx = like(x);
  CAIRN_RUN("l2_normalize", x,
            l2_normalize_backward<T>(stream, filled_rows(s), x.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

}  // namespace cairn
