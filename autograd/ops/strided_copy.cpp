#include "core/kernels/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "autograd/ops.h"
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

// Writes x to positions [begin, begin + x.size(axis)) of one axis of y.
void assign(Tensor& y, int axis, int64_t begin, const Tensor& x) {
  copy_part("assign", x.shape(), x, 0, y, begin * steps_of(y.shape())[size_t(axis)]);
}

}  // namespace

Variable permute(const Variable& x, const Axes& axes) {
  check(int(axes.size()) == x.shape().rank(), "permute: ", axes.size(), " axes for ", x.shape());
  const std::vector<int64_t> in = steps_of(x.shape());
  std::vector<int> order;
  Axes back(axes.size());
  Shape shape;
  for (const int given : axes) {
    const int axis = x.shape().normalize(given);
    check(std::find(order.begin(), order.end(), axis) == order.end(), "permute: axis ", given, " is given twice");
    back[size_t(axis)] = int(order.size());
    order.push_back(axis);
    shape.push_back(x.size(axis));
  }
  const std::vector<int64_t> out = steps_of(shape);
  Strides strides;
  for (size_t i = 0; i < order.size(); ++i) strides.push_back(shape[int(i)], {in[size_t(order[i])], out[i]});
  Tensor y(shape, x.dtype(), x.device());
  copy("permute", strides, x, 0, y, 0);
  return record("permute", y, {x}, [back](const Tensor& g) -> Gradients { return {permute(g, back)}; });
}

Variable slice(const Variable& x, int axis, int64_t begin, int64_t end) {
  axis = x.shape().normalize(axis);
  check(0 <= begin && begin <= end && end <= x.size(axis), "slice: ", begin, " to ", end, " of axis ", axis, " of ",
        x.shape());
  Tensor y(x.shape().with(axis, end - begin), x.dtype(), x.device());
  copy_part("slice", y.shape(), x, begin * steps_of(x.shape())[size_t(axis)], y, 0);
  return record("slice", y, {x}, [axis, begin, from = x.shape()](const Tensor& g) -> Gradients {
    Tensor dx = Tensor::zeros(from, g.dtype(), g.device());
    assign(dx, axis, begin, g);
    return {dx};
  });
}

Variable concat(const std::vector<Variable>& parts, int axis) {
  check(!parts.empty(), "concat: no tensors");
  const Tensor first = parts[0];
  axis = first.shape().normalize(axis);
  std::vector<int64_t> borders{0};
  for (const Variable& part : parts) {
    check(part.shape().rank() == first.rank() && part.shape().with(axis, 0) == first.shape().with(axis, 0),
          "concat: ", part.shape(), " does not join ", first.shape(), " along axis ", axis);
    expect("concat",
           {of_type(first.dtype(), "the first part", first, nullptr), of_type(first.dtype(), "a part", part, nullptr)});
    borders.push_back(borders.back() + part.size(axis));
  }
  Tensor y(first.shape().with(axis, borders.back()), first.dtype(), first.device());
  for (size_t i = 0; i < parts.size(); ++i) assign(y, axis, borders[i], parts[i]);
  return record("concat", y, parts, [axis, borders](const Tensor& g) -> Gradients {
    Gradients gradients;
    for (size_t i = 1; i < borders.size(); ++i) gradients.push_back(slice(g, axis, borders[i - 1], borders[i]));
    return gradients;
  });
}

Variable stack(const std::vector<Variable>& parts, int axis) {
  std::vector<Variable> slices;
  for (const Variable& part : parts) {
    check(axis >= -part.shape().rank() - 1 && axis <= part.shape().rank(), "stack: axis ", axis, " out of range for ",
          part.shape());
    std::vector<int64_t> sizes(part.shape().begin(), part.shape().end());
    sizes.insert(axis < 0 ? sizes.end() + (axis + 1) : sizes.begin() + axis, 1);
    slices.push_back(reshape(part, Shape(sizes.begin(), sizes.end())));
  }
  return concat(slices, axis);
}

// The tape sums the gradient back to x's shape.
Variable broadcast_to(const Variable& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "broadcast_to") == shape, "broadcast_to: ", x.shape(), " does not broadcast to ",
        shape);
  Tensor y(shape, x.dtype(), x.device());
  copy("broadcast_to", broadcast_strides(shape, {x.shape(), shape}), x, 0, y, 0);
  return record("broadcast_to", y, {x}, [](const Tensor& g) -> Gradients { return {g}; });
}

}  // namespace cairn
