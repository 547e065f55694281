#include "core/ops.h"

#include "core/dispatch.h"
#include "core/kernels/softmax.h"
#include "core/ops/checks.h"

namespace cairn {

// No rows if there are no columns, so that kernels do not loop over empty rows.
static Rows rows_of(const Sizes& s) { return {s['C'] ? s['R'] : 0, s['C']}; }

Tensor softmax(const Tensor& x) {
  const Sizes s = expect("softmax", {{"x", x, "*R C"}});
  Tensor y = empty_like(x);
  CAIRN_RUN("softmax", x, softmax_forward<T>(stream, rows_of(s), x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  const Sizes s = expect("softmax", {{"y", y, "*R C"}, {"the gradient", dy, "*R C"}});
  Tensor dx = empty_like(y);
  CAIRN_RUN("softmax", y, softmax_backward<T>(stream, rows_of(s), y.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

}  // namespace cairn
