#include "core/kernels/softmax.h"

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

// y = exp(x - max) / its sum over the row:  dx = y (dy - sum over the row of y dy)
Variable softmax(const Variable& x) {
  const Sizes s = expect("softmax", {{"x", x, "*R C"}});
  const Rows size{s['C'] ? s['R'] : 0, s['C']};  // no loops over rows without columns
  Tensor y = empty_like(x);
  CAIRN_RUN("softmax", y, softmax_forward<T>(stream, size, x.data<T>(), y.mutable_data<T>()));
  // [lesson 3
  return record("softmax", y, {x}, [size, y = SavedTensor(y)](const Tensor& g) -> Gradients {
    Tensor dx = empty_like(g);
    CAIRN_RUN("softmax", g, softmax_backward<T>(stream, size, y().data<T>(), g.data<T>(), dx.mutable_data<T>()));
    return {dx};
  });
  // lesson 3]
}

}  // namespace cairn
