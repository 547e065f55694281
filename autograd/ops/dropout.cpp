#include "core/kernels/dropout.h"

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

// x with dropout; plus the residual, if it is given.
static Tensor dropped(const Tensor& x, double p, const Draw& draw, const Tensor& residual = {}) {
  expect("dropout", {{"x", x, "*R"}, optional({"the residual", residual, "*R"})});
  check(p >= 0 && p <= 1, "dropout: expected a probability, got ", p);
  const int64_t per_example = x.rank() == 0 ? 0 : x.shape().without(0).elements();
  Tensor y = empty_like(x);
  CAIRN_RUN("dropout", x,
            dropout<T>(stream, x.elements(), Dropout{float(p), draw.for_kernel(per_example)}, x.data<T>(),
                       data_or_null<T>(residual), y.mutable_data<T>()));
  return y;
}

// The mask is not saved: the gradient draws it again, with the same numbers.
Variable dropout(const Variable& x, double p, Draw draw) {
  if (p == 0) return x;
  // [lesson 3
  return record("dropout", dropped(x, p, draw), {x},
                [p, draw](const Tensor& g) -> Gradients { return {dropped(g, p, draw)}; });
  // lesson 3]
}

Variable dropout_add(const Variable& x, double p, Draw draw, const Variable& residual) {
  check(residual.defined(), "dropout: the residual was never given a value");
  if (p == 0) return residual + x;
  return record("dropout_add", dropped(x, p, draw, residual), {x, residual}, [p, draw](const Tensor& g) -> Gradients {
    return {dropped(g, p, draw), g};
  });
}

}  // namespace cairn
