#include "core/ops.h"

#include <cmath>

#include "core/dispatch.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor unary(Unary op, const Tensor& x) {
  expect(name(op), {{"x", x, "*R"}});
  Tensor y = empty_like(x);
  CAIRN_RUN(name(op), x, unary<T>(stream, op, x.elements(), x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor unary_backward(Unary op, const Tensor& x, const Tensor& dy) {
  expect(name(op), {{"x", x, "*R"}, {"the gradient", dy, "*R"}});
  Tensor dx = empty_like(x);
  CAIRN_RUN(name(op), x, unary_backward<T>(stream, op, x.elements(), x.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

static Shape broadcast_shape(const char* operation, const Tensor& a, const Tensor& b, bool or_int32 = true) {
  expect(operation, {{.name = "the first operand", .tensor = a, .shape = "*A", .or_int32 = or_int32},
                     {"the second operand", b, "*B"}});
  return broadcast(a.shape(), b.shape(), operation);
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  Tensor y(broadcast_shape(name(op), a, b, takes_int32(op)), a.dtype(), a.device());
  const Strides strides = broadcast_strides(y.shape(), {a.shape(), b.shape()});
  CAIRN_RUN_NUMBERS(name(op), a, binary<T>(stream, op, strides, a.data<T>(), b.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor binary_backward(Binary op, int operand, const Tensor& a, const Tensor& b, const Tensor& dy) {
  const Shape shape = broadcast_shape(name(op), a, b);
  expect(name(op), {{"the first operand", a, "*A"}, {"the gradient", dy, "*G"}});
  check(dy.shape() == shape, name(op), ": expected the gradient of shape ", shape, ", got ", dy.shape());
  Tensor dx = empty_like(dy);
  const Strides strides = broadcast_strides(shape, {shape, a.shape(), b.shape()});
  CAIRN_RUN(
      name(op), a,
      binary_backward<T>(stream, op, operand, strides, dy.data<T>(), a.data<T>(), b.data<T>(), dx.mutable_data<T>()));
  return dx;
}

Tensor compare(Compare op, const Tensor& a, const Tensor& b) {
  Tensor y(broadcast_shape(name(op), a, b), DType::boolean, a.device());
  const Strides strides = broadcast_strides(y.shape(), {a.shape(), b.shape()});
  CAIRN_RUN_NUMBERS(name(op), a, compare<T>(stream, op, strides, a.data<T>(), b.data<T>(), y.mutable_data<bool>()));
  return y;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shape("where", a, b);
  expect("where", {number({"the first operand", a, "*A"}), of_type(DType::boolean, "the condition", condition, "*C")});
  Tensor y(broadcast(condition.shape(), shape, "where"), a.dtype(), a.device());
  const Strides strides = broadcast_strides(y.shape(), {condition.shape(), a.shape(), b.shape()});
  CAIRN_RUN_NUMBERS("where", a,
                    where<T>(stream, strides, condition.data<bool>(), a.data<T>(), b.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor affine(const Tensor& x, double alpha, double beta) {
  expect("affine", {number({"x", x, "*R"})});
  check(is_floating(x.dtype()) || (alpha == std::trunc(alpha) && beta == std::trunc(beta)), "affine: ", alpha, " x + ",
        beta, " for int32 x, expected whole numbers");
  Tensor y = empty_like(x);
  CAIRN_RUN_NUMBERS("affine", x, affine<T>(stream, x.elements(), alpha, beta, x.data<T>(), y.mutable_data<T>()));
  return y;
}

void accumulate(Tensor& y, const Tensor& x) {
  expect("accumulate", {{"y", y, "*R"}, {"x", x, "*R"}});
  const Strides strides = broadcast_strides(y.shape(), {y.shape(), x.shape()});
  CAIRN_RUN("accumulate", x, binary<T>(stream, Binary::add, strides, y.data<T>(), x.data<T>(), y.mutable_data<T>()));
}

}  // namespace cairn
