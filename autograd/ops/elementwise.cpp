#include "core/kernels/elementwise.h"

#include <cmath>

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

// The formulas and derivatives are in core/functions.h.
Variable unary(Unary op, const Variable& x) {
  expect(name(op), {{"x", x, "*R"}});
  Tensor y = empty_like(x);
  CAIRN_RUN(name(op), y, unary<T>(stream, op, y.elements(), x.data<T>(), y.mutable_data<T>()));
  return record(name(op), y, {x}, [op, x = SavedTensor(x)](const Tensor& g) -> Gradients {
    Tensor dx = empty_like(g);
    CAIRN_RUN(name(op), g,
              unary_backward<T>(stream, op, g.elements(), x().data<T>(), g.data<T>(), dx.mutable_data<T>()));
    return {dx};
  });
}

static Tensor computed(Binary op, const Tensor& a, const Tensor& b) {
  Tensor y(expect_broadcast(name(op), a, b, takes_int32(op)), a.dtype(), a.device());
  const Strides strides = broadcast_strides(y.shape(), {a.shape(), b.shape()});
  CAIRN_RUN_NUMBERS(name(op), a, binary<T>(stream, op, strides, a.data<T>(), b.data<T>(), y.mutable_data<T>()));
  return y;
}

// g df / da (operand 0) or g df / db (operand 1), in g's shape.
static Tensor gradient_of(Binary op, int operand, const Tensor& a, const Tensor& b, const Tensor& g) {
  Tensor dx = empty_like(g);
  const Strides strides = broadcast_strides(g.shape(), {g.shape(), a.shape(), b.shape()});
  CAIRN_RUN(
      name(op), g,
      binary_backward<T>(stream, op, operand, strides, g.data<T>(), a.data<T>(), b.data<T>(), dx.mutable_data<T>()));
  return dx;
}

Variable binary(Binary op, const Variable& a, const Variable& b) {
  // [lesson 3
  return record(
      name(op), computed(op, a, b), {a, b},
      [op, a = SavedTensor(a), b = SavedTensor(b), by_a = a.requires_grad(),
       by_b = b.requires_grad()](const Tensor& g) -> Gradients {
        return {by_a ? gradient_of(op, 0, a(), b(), g) : Tensor(), by_b ? gradient_of(op, 1, a(), b(), g) : Tensor()};
      });
  // lesson 3]
}

// The gradient of a sum needs neither operands nor a copy.
Variable operator+(const Variable& a, const Variable& b) {
  return record("add", computed(Binary::add, a, b), {a, b}, [](const Tensor& g) -> Gradients { return {g, g}; });
}

Variable operator-(const Variable& a, const Variable& b) {
  return record("subtract", computed(Binary::subtract, a, b), {a, b}, [](const Tensor& g) -> Gradients {
    return {g, affine(g, -1)};
  });
}

Variable pow(const Variable& x, double exponent) { return pow(x, Tensor::full({}, exponent, x.dtype(), x.device())); }

Variable affine(const Variable& x, double alpha, double beta) {
  expect("affine", {number({"x", x, "*R"})});
  const auto fits = [](double number) {
    return number == std::trunc(number) && number >= INT32_MIN && number <= INT32_MAX;
  };
  check(is_floating(x.dtype()) || (fits(alpha) && fits(beta)), "affine: ", alpha, " x + ", beta,
        " for int32 x, expected whole numbers of int32");
  Tensor y = empty_like(x);
  CAIRN_RUN_NUMBERS("affine", y, affine<T>(stream, y.elements(), alpha, beta, x.data<T>(), y.mutable_data<T>()));
  return record("affine", y, {x},
                [alpha](const Tensor& g) -> Gradients { return {alpha == 1 ? g : affine(g, alpha).value()}; });
}

Variable cast(const Variable& x, DType dtype) {
  expect("cast", {{"x", x, "*R"}});
  if (x.dtype() == dtype) return x;
  return record("cast", x.value().cast(dtype), {x},
                [from = x.dtype()](const Tensor& g) -> Gradients { return {g.cast(from)}; });
}

// exp(x), log(x) and the others.
#define CAIRN_DEFINE(name, ...) \
  Variable name(const Variable& x) { return unary(Unary::name, x); }
CAIRN_UNARY(CAIRN_DEFINE)
#undef CAIRN_DEFINE

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  const Shape shape = expect_broadcast("where", a, b, true);
  expect("where", {number({"the first operand", a, "*A"}), of_type(DType::boolean, "the condition", condition, "*C")});
  Tensor y(broadcast(condition.shape(), shape, "where"), a.dtype(), a.device());
  const Strides strides = broadcast_strides(y.shape(), {condition.shape(), a.shape(), b.shape()});
  CAIRN_RUN_NUMBERS("where", y,
                    where<T>(stream, strides, condition.data<bool>(), a.data<T>(), b.data<T>(), y.mutable_data<T>()));
  return record("where", y, {a, b}, [condition = SavedTensor(condition)](const Tensor& g) -> Gradients {
    const Tensor zero = Tensor::zeros({}, g.dtype(), g.device());
    return {where(condition(), g, zero), where(condition(), zero, g)};
  });
}

Variable binary_cross_entropy(const Variable& logits, const Variable& targets) {
  return mean(binary(Binary::binary_cross_entropy, logits, targets));
}

}  // namespace cairn
