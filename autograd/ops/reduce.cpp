#include "core/kernels/reduce.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

static Variable reshaped(const Variable& x, const Tensor& y) {
  return record("reshape", y, {x}, [from = x.shape()](const Tensor& g) -> Gradients { return {g.reshape(from)}; });
}
Variable reshape(const Variable& x, const Shape& shape) { return reshaped(x, x.value().reshape(shape)); }
Variable reshape(const Variable& x, std::initializer_list<int64_t> sizes) {
  return reshaped(x, x.value().reshape(sizes));
}

static Axes all_axes(const Variable& x) {
  Axes axes(size_t(x.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// `shape` with one element along the axes.
static Shape kept(Shape shape, const Axes& axes) {
  for (const int axis : axes) shape = shape.with(axis, 1);
  return shape;
}

// Over some axes, which disappear, or with `keep` have one element. Sums of bfloat16 are float32.
static Tensor summed(const Tensor& x, const Axes& axes, bool keep = false) {
  expect("sum", {{"x", x, "*R"}});
  bool chosen[max_rank] = {};
  for (const int given : axes) {
    const int axis = x.shape().normalize(given);
    check(!chosen[axis], "sum: axis ", given, " is given twice");
    chosen[axis] = true;
  }
  // Neighboring axes are summed in one pass, the innermost first.
  Tensor y = x;
  Shape shape;  // without the axes that are summed
  for (int last = x.rank() - 1; last >= 0; --last) {
    if (!chosen[last]) continue;
    Reduction size;
    for (int axis = last + 1; axis < x.rank(); ++axis) size.inner *= y.size(axis);
    Shape to = y.shape();
    for (; last >= 0 && chosen[last]; --last) {
      size.n *= y.size(last);
      to = to.with(last, 1);
    }
    for (int axis = 0; axis <= last; ++axis) size.outer *= y.size(axis);
    Tensor next(to, sums_of(x), x.device());
    if (next.elements() == 0) size.n = 0;  // do not loop over empty rows
    CAIRN_RUN("sum", y, sum<T>(stream, size, y.data<T>(), next.mutable_data<Accum<T>>()));
    y = next;
  }
  for (int axis = 0; axis < x.rank(); ++axis)
    if (!chosen[axis]) shape.push_back(x.size(axis));
  return keep ? y : y.reshape(shape);
}

Variable sum(const Variable& x, const Axes& axes, bool keep) {
  const Tensor y = summed(x, axes, keep).cast(x.dtype());
  return record("sum", y, {x}, [saved = kept(x.shape(), axes), from = x.shape()](const Tensor& g) -> Gradients {
    return {broadcast_to(g.reshape(saved), from)};
  });
}
Variable sum(const Variable& x) { return sum(x, all_axes(x)); }

Tensor sum_to(const Tensor& x, const Shape& shape) {
  expect("sum_to", {{"x", x, "*R"}});
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "sum_to") == x.shape(), "sum_to: ", shape, " does not broadcast to ", x.shape());
  // [lesson 0
  Axes axes;
  for (int axis = -x.rank(); axis < 0; ++axis)
    if (-axis > shape.rank() || shape[axis] != x.size(axis)) axes.push_back(axis);
  return summed(x, axes).reshape(shape);
  // lesson 0]
}

Variable mean(const Variable& x, const Axes& axes, bool keep) {
  const Variable total = sum(x, axes, keep);
  return total / (double(x.shape().elements()) / double(total.shape().elements()));
}
Variable mean(const Variable& x) { return mean(x, all_axes(x)); }

// The axes are moved to the end and merged; argmax finds the first largest element there.
Variable max(const Variable& x, const Axes& axes, bool keep) {
  const Shape with_ones = kept(x.shape(), axes);
  Axes order = all_axes(x);
  const auto last = std::stable_partition(order.begin(), order.end(), [&](int axis) {
    return std::none_of(axes.begin(), axes.end(), [&](int given) { return x.shape().normalize(given) == axis; });
  });
  check(size_t(order.end() - last) == axes.size(), "max: an axis of ", x.shape(), " is given twice");
  const Variable ordered = std::is_sorted(order.begin(), order.end()) ? x : permute(x, order);
  Shape matrix;
  int64_t columns = 1;
  for (auto axis = order.begin(); axis != last; ++axis) matrix.push_back(x.size(*axis));
  for (auto axis = last; axis != order.end(); ++axis) columns *= x.size(*axis);
  matrix.push_back(columns);
  const Variable rows = reshape(ordered, matrix);
  const Variable y = gather_columns(rows, argmax(rows));
  return keep ? reshape(y, with_ones) : y;
}
Variable max(const Variable& x) { return max(x, all_axes(x)); }

}  // namespace cairn
