#include "core/ops.h"

#include "core/dispatch.h"
#include "core/kernels/dropout.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor dropout(const Tensor& x, double p, Draw draw, const Tensor& residual) {
  expect("dropout", {{"x", x, "*R"}, optional({"the residual", residual, "*R"})});
  check(p >= 0 && p <= 1, "dropout: expected a probability, got ", p);
  const int64_t per_example = x.rank() == 0 ? 0 : x.shape().without(0).elements();
  Tensor y = empty_like(x);
  CAIRN_RUN("dropout", x,
            dropout<T>(stream, x.elements(), Dropout{float(p), draw.for_kernel(per_example)}, x.data<T>(),
                       residual.defined() ? residual.data<T>() : nullptr, y.mutable_data<T>()));
  return y;
}

}  // namespace cairn
