#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "autograd/ops.h"

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

Variable sum(const Variable& x, const Axes& axes, bool keep) {
  const Tensor y = sum(x.value(), axes, keep);
  return record("sum", y, {x}, [saved = kept(x.shape(), axes), from = x.shape()](const Tensor& g) -> Gradients {
    return {broadcast_to(g.reshape(saved), from)};
  });
}
Variable sum(const Variable& x) { return sum(x, all_axes(x)); }

Variable mean(const Variable& x, const Axes& axes, bool keep) {
  const Variable total = sum(x, axes, keep);
  return total / (double(x.shape().elements()) / double(total.shape().elements()));
}
Variable mean(const Variable& x) { return mean(x, all_axes(x)); }

// The axes go last and become one; argmax finds the first of the largest there.
Variable max(const Variable& x, const Axes& axes, bool keep) {
  Axes order = all_axes(x), from_front;
  for (const int axis : axes) from_front.push_back(x.shape().normalize(axis));
  const auto stays = [&](int axis) {
    return std::find(from_front.begin(), from_front.end(), axis) == from_front.end();
  };
  const auto moved = std::stable_partition(order.begin(), order.end(), stays);
  check(order.end() - moved == int64_t(axes.size()), "max: an axis of ", x.shape(), " is given twice");
  Shape rows;
  for (auto axis = order.begin(); axis != moved; ++axis) rows.push_back(x.size(*axis));
  int64_t cols = 1;
  for (auto axis = moved; axis != order.end(); ++axis) cols *= x.size(*axis);
  Variable last = x;
  if (!std::is_sorted(order.begin(), order.end())) last = permute(x, order);
  Shape matrix = rows;
  matrix.push_back(cols);
  last = reshape(last, matrix);
  const Variable y = gather_columns(last, argmax(last.value()));
  return keep ? reshape(y, kept(x.shape(), axes)) : y;
}
Variable max(const Variable& x) { return max(x, all_axes(x)); }

}  // namespace cairn
