#include "core/ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/checks.h"

namespace cairn {

static Tensor reduce_as(Reduce op, const Tensor& x, Reduction size, const Shape& shape) {
  Tensor y(shape, x.dtype(), x.device());
  if (y.elements() == 0) size.n = 0;  // however many there are
  CAIRN_RUN("reduce", x, reduce<T>(stream, op, size, x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor reduce(Reduce op, const Tensor& x, int axis) {
  expect("reduce", {{"x", x, "*R"}});
  check(axis >= -x.rank() && axis < x.rank(), "reduce: axis ", axis, " out of range for ", x.shape());
  axis = x.shape().normalize(axis);
  Reduction size{1, x.size(axis), 1};
  for (int i = 0; i < x.rank(); ++i) (i < axis ? size.outer : size.inner) *= i == axis ? 1 : x.size(i);
  return reduce_as(op, x, size, x.shape().without(axis));
}

Tensor sum_all(const Tensor& x) {
  expect("sum", {{"x", x, "*R"}});
  return reduce_as(Reduce::sum, x, {1, x.elements(), 1}, {});
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  expect("sum_to", {{"x", x, "*R"}});
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "sum_to") == x.shape(), "sum_to: ", shape, " does not broadcast to ", x.shape());
  // Leading axes that were added or stretched go in one step: a bias's gradient is one sum over rows.
  int leading = 0;
  while (leading < x.rank() && (leading < x.rank() - shape.rank() || shape[leading - x.rank()] == 1)) ++leading;
  int64_t outer = 1;
  for (int i = 0; i < leading; ++i) outer *= x.size(i);
  Tensor result = x;
  if (leading > 0) {
    const Shape rest(x.shape().begin() + leading, x.shape().end());
    result = reduce_as(Reduce::sum, x, {1, outer, rest.elements()}, rest);
  }
  for (int i = 1; i <= result.rank(); ++i)
    if (shape[-i] == 1 && result.size(-i) != 1) {
      const Shape saved = result.shape().with(-i, 1);
      result = reduce(Reduce::sum, result, -i).reshape(saved);
    }
  return result.reshape(shape);
}

}  // namespace cairn
