#include "core/kernels/argmax.h"

#include <cstdint>

#include "core/attention_ops.h"
#include "core/dispatch.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor argmax(const Tensor& x, const Tensor& lengths) {
  const Sizes s = expect("argmax", {{"x", x, "*R C"}, optional(of_type(DType::int32, "lengths", lengths, "B"))});
  const int64_t cols = s['C'];
  check(cols > 0 && cols <= INT32_MAX, "argmax: ", cols, " columns in ", x.shape(), ", expected 1 to ", INT32_MAX);
  Tensor columns(x.shape().without(-1), DType::int32, x.device());
  CAIRN_RUN("argmax", x, argmax<T>(stream, Rows{s['R'], cols}, x.data<T>(), columns.mutable_data<int32_t>()));
  if (!lengths.defined()) return columns;
  check(x.rank() >= 3 && x.size(0) == s['B'], "argmax: expected x of shape [B, ..., N, C] for lengths ",
        lengths.shape(), ", got ", x.shape());
  check_values("argmax", "lengths", lengths, 0, x.size(-2));
  constexpr int64_t most = 1 << 24;  // which float32 holds; `where` takes no integers
  check(cols <= most, "argmax: ", cols, " columns in ", x.shape(), ", expected at most ", most, " with lengths");
  Shape shape = columns.shape();
  for (int axis = 1; axis < shape.rank() - 1; ++axis) shape = shape.with(axis, 1);
  const Tensor inside = within(lengths, x.size(-2)).reshape(shape),
               none = Tensor::full({}, -1, DType::float32, x.device());
  return where(inside, columns.cast(DType::float32), none).cast(DType::int32);
}

}  // namespace cairn
