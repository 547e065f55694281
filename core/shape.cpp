#include "core/shape.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"

namespace cairn {

Shape::Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}

void Shape::push_back(int64_t size) {
  check(rank_ < max_rank, "shape: more than ", max_rank, " axes");
  check(size >= 0, "shape: negative size ", size, " of axis ", rank_);
  sizes_[size_t(rank_++)] = size;
  elements();  // throws if the number of elements overflows
}

int64_t Shape::elements() const {
  int64_t product = 1;
  bool empty = false;
  for (int64_t size : *this) {
    if (size == 0)
      empty = true;
    else
      check(!__builtin_mul_overflow(product, size, &product), "shape: too many elements in ", *this);
  }
  return empty ? 0 : product;
}

int Shape::normalize(int axis) const {
  check(axis >= -rank_ && axis < rank_, "shape: axis ", axis, " out of range for ", *this);
  return axis < 0 ? axis + rank_ : axis;
}

Shape Shape::with(int axis, int64_t size) const {
  Shape result;
  axis = normalize(axis);
  for (int i = 0; i < rank_; ++i) result.push_back(i == axis ? size : sizes_[size_t(i)]);
  return result;
}

Shape Shape::without(int axis) const {
  Shape result;
  axis = normalize(axis);
  for (int i = 0; i < rank_; ++i)
    if (i != axis) result.push_back(sizes_[size_t(i)]);
  return result;
}

void append(std::string& text, const Shape& shape) {
  text += '[';
  for (int i = 0; i < shape.rank(); ++i) text += concat(i ? ", " : "", shape[i]);
  text += ']';
}

std::string to_string(const Shape& shape) { return concat(shape); }

Shape broadcast(const Shape& a, const Shape& b, const char* operation) {
  Shape result;
  const int rank = std::max(a.rank(), b.rank());
  for (int i = rank; i-- > 0;) {
    const int64_t x = i < a.rank() ? a[-1 - i] : 1, y = i < b.rank() ? b[-1 - i] : 1;
    check(x == y || x == 1 || y == 1, operation, ": shapes ", a, " and ", b, " do not broadcast: sizes ", x, " and ", y,
          " of axis ", rank - 1 - i, " differ and neither is 1");
    result.push_back(x == 1 ? y : x);
  }
  return result;
}

void Strides::push_back(int64_t size, const Steps& along) {
  if (size == 1) return;
  const int last = rank - 1;
  bool as_one = rank > 0;
  for (int t = 0; t < max_tensors; ++t) as_one = as_one && steps[t][last] == size * along[size_t(t)];
  const int axis = as_one ? last : rank++;
  sizes[axis] = as_one ? sizes[axis] * size : size;
  for (int t = 0; t < max_tensors; ++t) steps[t][axis] = along[size_t(t)];
}

Strides broadcast_strides(const Shape& result, std::initializer_list<Shape> tensors) {
  Strides strides;
  for (int axis = 0; axis < result.rank(); ++axis) {
    Strides::Steps along{};
    size_t t = 0;
    for (const Shape& shape : tensors) {
      // [lesson 0
      const int own = axis - result.rank() + shape.rank();  // the same axis of the tensor
      int64_t step = own >= 0 && shape[own] != 1;
      for (int inner = own + 1; step != 0 && inner < shape.rank(); ++inner) step *= shape[inner];
      along[t++] = step;
      // lesson 0]
    }
    strides.push_back(result[axis], along);
  }
  return strides;
}

}  // namespace cairn
