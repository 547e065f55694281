#include "core/ops.h"

#include "core/dispatch.h"
#include "core/kernels/dropout.h"
#include "core/ops/checks.h"

namespace cairn {

// residual may be undefined.
static Tensor run_dropout(const char* operation, const Tensor& x, double p, Draw draw, const Tensor& residual) {
  check(p >= 0 && p <= 1, operation, ": expected a probability, got ", p);
  const int64_t per_example = x.rank() == 0 ? 0 : x.shape().without(0).elements();
  Tensor y = empty_like(x);
  CAIRN_RUN(operation, x,
            dropout<T>(stream, x.elements(), Dropout{draw.for_kernel(per_example), float(p)}, x.data<T>(),
                       residual.defined() ? residual.data<T>() : nullptr, y.mutable_data<T>()));
  return y;
}

Tensor dropout(const Tensor& x, double p, Draw draw) {
  expect("dropout", {{"x", x, "*R"}});
  return run_dropout("dropout", x, p, draw, {});
}

Tensor dropout_add(const Tensor& x, double p, Draw draw, const Tensor& residual) {
  expect("dropout_add", {{"x", x, "*R"}, {"the residual", residual, "*R"}});
  return run_dropout("dropout_add", x, p, draw, residual);
}

}  // namespace cairn
