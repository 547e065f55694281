#include "autograd/ops.h"

#include "core/ops/checks.h"

namespace cairn {

static Tensor mul(const Tensor& a, const Tensor& b) { return binary(Binary::multiply, a, b); }

Variable operator+(const Variable& a, const Variable& b) {
  return record("add", binary(Binary::add, a.value(), b.value()), {a, b}, [](const Tensor& g) -> Gradients {
    return {g, g};
  });
}

Variable operator-(const Variable& a, const Variable& b) {
  return record("subtract", binary(Binary::subtract, a.value(), b.value()), {a, b}, [](const Tensor& g) -> Gradients {
    return {g, affine(g, -1)};
  });
}

Variable operator*(const Variable& a, const Variable& b) {
  return record("multiply", mul(a.value(), b.value()), {a, b},
                [a = SavedTensor(a.value()), b = SavedTensor(b.value())](const Tensor& g) -> Gradients {
                  return {mul(g, b()), mul(g, a())};
                });
}

// (a / b)' = a' / b - (a / b) b' / b
Variable operator/(const Variable& a, const Variable& b) {
  const Tensor y = binary(Binary::divide, a.value(), b.value());
  return record("divide", y, {a, b}, [y = SavedTensor(y), b = SavedTensor(b.value())](const Tensor& g) -> Gradients {
    const Tensor da = binary(Binary::divide, g, b());
    return {da, affine(mul(da, y()), -1)};
  });
}

Variable operator*(double alpha, const Variable& x) {
  return record("scale", affine(x.value(), alpha), {x},
                [alpha](const Tensor& g) -> Gradients { return {affine(g, alpha)}; });
}

Variable operator+(const Variable& x, double beta) {
  return record("shift", affine(x.value(), 1, beta), {x}, [](const Tensor& g) -> Gradients { return {g}; });
}

Variable cast(const Variable& x, DType dtype) {
  expect("cast", {{"x", x.value(), "*R"}});
  if (x.dtype() == dtype) return x;
  return record("cast", x.value().cast(dtype), {x},
                [from = x.dtype()](const Tensor& g) -> Gradients { return {g.cast(from)}; });
}

// Functions of one element: the derivatives are in core/functors.h.
static Variable apply(Unary op, const Variable& x) {
  return record(name(op), unary(op, x.value()), {x}, [op, x = SavedTensor(x.value())](const Tensor& g) -> Gradients {
    return {unary_backward(op, x(), g)};
  });
}

Variable operator-(const Variable& x) { return apply(Unary::negate, x); }
Variable exp(const Variable& x) { return apply(Unary::exp, x); }
Variable log(const Variable& x) { return apply(Unary::log, x); }
Variable sqrt(const Variable& x) { return apply(Unary::sqrt, x); }
Variable square(const Variable& x) { return apply(Unary::square, x); }
Variable relu(const Variable& x) { return apply(Unary::relu, x); }
Variable gelu(const Variable& x) { return apply(Unary::gelu, x); }

}  // namespace cairn
