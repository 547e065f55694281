#include "core/kernels/reduce.h"

#include <cstdint>

#include "core/ops.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor argmax(const Tensor& x) {
  const Sizes s = expect("argmax", {{"x", x, "*R C"}});
  const Rows size{s['R'], s['C']};
  check(size.cols > 0 && size.cols <= INT32_MAX, "argmax: ", size.cols, " columns in ", x.shape(), ", expected 1 to ",
        INT32_MAX);
  Tensor columns(x.shape().without(-1), DType::int32, x.device());
  CAIRN_RUN("argmax", x, argmax<T>(stream, size, x.data<T>(), columns.mutable_data<int32_t>()));
  return columns;
}

}  // namespace cairn
