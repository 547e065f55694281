#include "core/kernels/reduce.h"

#include <cstdint>

#include "core/attention_ops.h"
#include "core/dispatch.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor sum(const Tensor& x, const Axes& axes, bool keep) {
  expect("sum", {{"x", x, "*R"}});
  bool summed[max_rank] = {};
  for (const int given : axes) {
    const int axis = x.shape().normalize(given);
    check(!summed[axis], "sum: axis ", given, " is given twice");
    summed[axis] = true;
  }
  // Neighboring axes are summed in one pass, the innermost first.
  Tensor y = x;
  Shape shape;  // without the axes that are summed
  for (int last = x.rank() - 1; last >= 0; --last) {
    if (!summed[last]) continue;
    Reduction size;
    for (int axis = last + 1; axis < x.rank(); ++axis) size.inner *= y.size(axis);
    Shape to = y.shape();
    for (; last >= 0 && summed[last]; --last) {
      size.n *= y.size(last);
      to = to.with(last, 1);
    }
    for (int axis = 0; axis <= last; ++axis) size.outer *= y.size(axis);
    Tensor next(to, x.dtype(), x.device());
    if (next.elements() == 0) size.n = 0;  // do not loop over empty rows
    CAIRN_RUN("sum", y, sum<T>(stream, size, y.data<T>(), next.mutable_data<T>()));
    y = next;
  }
  for (int axis = 0; axis < x.rank(); ++axis)
    if (!summed[axis]) shape.push_back(x.size(axis));
  return keep ? y : y.reshape(shape);
}

Tensor sum(const Tensor& x) { return sum(x.reshape({x.elements()}), {0}); }

Tensor sum_to(const Tensor& x, const Shape& shape) {
  expect("sum_to", {{"x", x, "*R"}});
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "sum_to") == x.shape(), "sum_to: ", shape, " does not broadcast to ", x.shape());
  Axes axes;
  for (int axis = -x.rank(); axis < 0; ++axis)
    if (-axis > shape.rank() || shape[axis] != x.size(axis)) axes.push_back(axis);
  return sum(x, axes).reshape(shape);
}

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
