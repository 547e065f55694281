#pragma once
// Helpers for attention that is composed of operations.
#include "autograd/ops.h"

namespace cairn {

// [B, N, H, D] to [B, H, N, D], and back.
inline Variable heads_first(const Variable& x) { return permute(x, {0, 2, 1, 3}); }

// A constant with the element type and the device of x.
inline Variable constant(double value, const Shape& shape, const Variable& x) {
  return Variable(Tensor::full(shape, value, x.dtype(), x.device()));
}

// x [B, H, N, D] with `value` in the rows beyond the lengths [B].
inline Variable with_beyond(const Variable& x, const Tensor& lengths, double value) {
  if (!lengths.defined()) return x;
  const Tensor inside = within(lengths, x.size(2)).reshape({x.size(0), 1, x.size(2), 1});
  return where(inside, x, constant(value, {}, x));
}

}  // namespace cairn
