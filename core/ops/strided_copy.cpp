#include "core/kernels/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dispatch.h"
#include "core/ops.h"
#include "core/ops/checks.h"

namespace cairn {
namespace {

// Copies x, from element `from` on, to y, from element `to` on.
void copy(const char* operation, const Strides& strides, const Tensor& x, int64_t from, Tensor& y, int64_t to) {
  const auto run = [&]<class Word>(Word) {
    const Word* source = static_cast<const Word*>(x.raw()) + from;
    Word* target = static_cast<Word*>(y.mutable_raw()) + to;
    CAIRN_CALL(operation, x, strided_copy(stream, strides, source, target));
  };
  switch (size_of(x.dtype())) {
    case 1: return run(uint8_t{});
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    default: return run(uint64_t{});
  }
}

// The strides of a contiguous tensor of this shape.
std::vector<int64_t> steps_of(const Shape& shape) {
  std::vector<int64_t> steps(size_t(shape.rank()), 1);
  for (int axis = shape.rank() - 1; axis > 0; --axis) steps[size_t(axis - 1)] = steps[size_t(axis)] * shape[axis];
  return steps;
}

// Copies a part of x to a part of y. Both parts have the shape `part`.
void copy_part(const char* operation, const Shape& part, const Tensor& x, int64_t from, Tensor& y, int64_t to) {
  const std::vector<int64_t> in = steps_of(x.shape()), out = steps_of(y.shape());
  Strides strides;
  for (int axis = 0; axis < part.rank(); ++axis) strides.push_back(part[axis], {in[size_t(axis)], out[size_t(axis)]});
  copy(operation, strides, x, from, y, to);
}

}  // namespace

Tensor permute(const Tensor& x, const Axes& axes) {
  check(int(axes.size()) == x.rank(), "permute: ", axes.size(), " axes for ", x.shape());
  const std::vector<int64_t> in = steps_of(x.shape());
  std::vector<int> order;
  Shape shape;
  for (const int given : axes) {
    const int axis = x.shape().normalize(given);
    check(std::find(order.begin(), order.end(), axis) == order.end(), "permute: axis ", given, " is given twice");
    order.push_back(axis);
    shape.push_back(x.size(axis));
  }
  const std::vector<int64_t> out = steps_of(shape);
  Strides strides;
  for (size_t i = 0; i < order.size(); ++i) strides.push_back(shape[int(i)], {in[size_t(order[i])], out[i]});
  Tensor y(shape, x.dtype(), x.device());
  copy("permute", strides, x, 0, y, 0);
  return y;
}

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end) {
  axis = x.shape().normalize(axis);
  check(0 <= begin && begin <= end && end <= x.size(axis), "slice: ", begin, " to ", end, " of axis ", axis, " of ",
        x.shape());
  Tensor y(x.shape().with(axis, end - begin), x.dtype(), x.device());
  copy_part("slice", y.shape(), x, begin * steps_of(x.shape())[size_t(axis)], y, 0);
  return y;
}

void assign(Tensor& y, int axis, int64_t begin, const Tensor& x) {
  axis = y.shape().normalize(axis);
  expect("assign", {of_type(y.dtype(), "y", y, "*Y"), of_type(y.dtype(), "x", x, "*X")});
  check(x.rank() == y.rank() && x.shape().with(axis, y.size(axis)) == y.shape(), "assign: ", x.shape(),
        " is no part of ", y.shape(), " along axis ", axis);
  check(begin >= 0 && begin <= y.size(axis) - x.size(axis), "assign: ", x.size(axis), " from ", begin, " of axis ",
        axis, " of ", y.shape());
  copy_part("assign", x.shape(), x, 0, y, begin * steps_of(y.shape())[size_t(axis)]);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  expect("broadcast_to", {of_type(x.dtype(), "x", x, "*R")});
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "broadcast_to") == shape, "broadcast_to: ", x.shape(), " does not broadcast to ",
        shape);
  Tensor y(shape, x.dtype(), x.device());
  copy("broadcast_to", broadcast_strides(shape, {x.shape(), shape}), x, 0, y, 0);
  return y;
}

}  // namespace cairn
