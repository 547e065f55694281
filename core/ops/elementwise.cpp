#include "core/ops.h"

#include <algorithm>
#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/checks.h"

namespace cairn {

// Strides of `from` as it broadcasts to `to`; 0 along axes that are stretched.
void broadcast_strides(const Shape& from, const Shape& to, int64_t* strides) {
  int64_t stride = 1;
  for (int i = 1; i <= to.rank(); ++i) {
    const int64_t size = i <= from.rank() ? from[-i] : 1;
    strides[to.rank() - i] = size == 1 ? 0 : stride;
    stride *= size;
  }
}

Tensor unary(Unary op, const Tensor& x) {
  expect(name(op), {{"x", x, "*R"}});
  Tensor y = like(x);
  CAIRN_RUN(name(op), x, unary<T>(stream, op, x.elements(), x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor unary_backward(Unary op, const Tensor& x, const Tensor& dy) {
  expect(name(op), {{"x", x, "*R"}, {"the gradient", dy, "*R"}});
  Tensor dx = like(x);
  CAIRN_RUN(name(op), x, unary_backward<T>(stream, op, x.elements(), x.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  expect(name(op), {{"the first operand", a, "*A"}, {"the second operand", b, "*B"}});
  Broadcast shape;
  if (a.shape() == b.shape()) {
    shape = {1, {a.elements()}, {1}, {1}};
  } else {
    const Shape result = broadcast(a.shape(), b.shape(), name(op));
    shape.rank = result.rank();
    std::copy(result.begin(), result.end(), shape.sizes);
    broadcast_strides(a.shape(), result, shape.stride_a);
    broadcast_strides(b.shape(), result, shape.stride_b);
  }
  Tensor y(broadcast(a.shape(), b.shape(), name(op)), a.dtype(), a.device());
  CAIRN_RUN(name(op), a, binary<T>(stream, op, shape, a.data<T>(), b.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor affine(const Tensor& x, double alpha, double beta) {
  expect("affine", {{"x", x, "*R"}});
  Tensor y = like(x);
  CAIRN_RUN("affine", x, affine<T>(stream, x.elements(), alpha, beta, x.data<T>(), y.mutable_data<T>()));
  return y;
}

void accumulate(Tensor& y, const Tensor& x, double alpha) {
  expect("accumulate", {{"y", y, "*R"}, {"x", x, "*R"}});
  CAIRN_RUN("accumulate", x, accumulate<T>(stream, x.elements(), alpha, x.data<T>(), y.mutable_data<T>()));
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  expect("broadcast_to", {{"x", x, "*R"}});
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "broadcast_to") == shape, "broadcast_to: ", x.shape(), " does not broadcast to ",
        shape);
  Broadcast strides;
  strides.rank = shape.rank();
  std::copy(shape.begin(), shape.end(), strides.sizes);
  broadcast_strides(x.shape(), shape, strides.stride_a);
  Tensor y(shape, x.dtype(), x.device());
  CAIRN_RUN("broadcast_to", x, expand<T>(stream, strides, x.data<T>(), y.mutable_data<T>()));
  return y;
}

}  // namespace cairn
