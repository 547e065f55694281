#include <cstddef>
#include <cstdint>
#include <vector>

#include "autograd/ops.h"

namespace cairn {

Variable permute(const Variable& x, const Axes& axes) {
  Axes back(axes.size());
  const Tensor y = permute(x.value(), axes);
  for (size_t i = 0; i < axes.size(); ++i) back[size_t(x.shape().normalize(axes[i]))] = int(i);
  return record("permute", y, {x}, [back](const Tensor& g) -> Gradients { return {permute(g, back)}; });
}

Variable slice(const Variable& x, int axis, int64_t begin, int64_t end) {
  return record("slice", slice(x.value(), axis, begin, end), {x},
                [axis, begin, from = x.shape()](const Tensor& g) -> Gradients {
                  Tensor dx = Tensor::zeros(from, g.dtype(), g.device());
                  assign(dx, axis, begin, g);
                  return {dx};
                });
}

Variable concat(const std::vector<Variable>& parts, int axis) {
  check(!parts.empty(), "concat: no tensors");
  const Tensor& first = parts[0].value();
  axis = first.shape().normalize(axis);
  std::vector<int64_t> borders{0};
  for (const Variable& part : parts) {
    check(part.shape().rank() == first.rank() && part.shape().with(axis, 0) == first.shape().with(axis, 0),
          "concat: ", part.shape(), " does not join ", first.shape(), " along axis ", axis);
    borders.push_back(borders.back() + part.size(axis));
  }
  Tensor y(first.shape().with(axis, borders.back()), first.dtype(), first.device());
  for (size_t i = 0; i < parts.size(); ++i) assign(y, axis, borders[i], parts[i].value());
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
  return record("broadcast_to", broadcast_to(x.value(), shape), {x}, [](const Tensor& g) -> Gradients { return {g}; });
}

}  // namespace cairn
