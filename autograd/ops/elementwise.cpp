#include "autograd/ops.h"

#include "core/ops/checks.h"

namespace cairn {

// The formulas and derivatives are in core/functions.h.
Variable unary(Unary op, const Variable& x) {
  return record(name(op), unary(op, x.value()), {x}, [op, x = SavedTensor(x.value())](const Tensor& g) -> Gradients {
    return {unary_backward(op, x(), g)};
  });
}

static Variable apply(Binary op, const Variable& a, const Variable& b) {
  return record(name(op), binary(op, a.value(), b.value()), {a, b},
                [op, a = SavedTensor(a.value()), b = SavedTensor(b.value()), by_a = a.requires_grad(),
                 by_b = b.requires_grad()](const Tensor& g) -> Gradients {
                  return {by_a ? binary_backward(op, 0, a(), b(), g) : Tensor(),
                          by_b ? binary_backward(op, 1, a(), b(), g) : Tensor()};
                });
}

// The gradient of a sum needs neither operands nor a copy.
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

Variable operator*(const Variable& a, const Variable& b) { return apply(Binary::multiply, a, b); }
Variable operator/(const Variable& a, const Variable& b) { return apply(Binary::divide, a, b); }
Variable divide_or_zero(const Variable& a, const Variable& b) { return apply(Binary::divide_or_zero, a, b); }
Variable maximum(const Variable& a, const Variable& b) { return apply(Binary::maximum, a, b); }
Variable pow(const Variable& a, const Variable& b) { return apply(Binary::pow, a, b); }
Variable pow(const Variable& x, double exponent) {
  return pow(x, Variable(Tensor::full({}, exponent, x.dtype(), x.device())));
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

// exp(x), log(x) and the others.
#define CAIRN_DEFINE(name, ...) \
  Variable name(const Variable& x) { return unary(Unary::name, x); }
CAIRN_UNARY(CAIRN_DEFINE)
#undef CAIRN_DEFINE

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  return record("where", where(condition, a.value(), b.value()), {a, b},
                [condition = SavedTensor(condition)](const Tensor& g) -> Gradients {
                  const Tensor zero = Tensor::zeros({}, g.dtype(), g.device());
                  return {where(condition(), g, zero), where(condition(), zero, g)};
                });
}

Variable binary_cross_entropy(const Variable& logits, const Variable& targets) {
  return mean(apply(Binary::binary_cross_entropy, logits, targets));
}

}  // namespace cairn
