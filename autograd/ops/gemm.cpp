#include "autograd/ops.h"

#include <optional>

namespace cairn {

// C = op(A) op(B):  d op(A) = dC op(B)^T,  d op(B) = op(A)^T dC; each has the layout of A or B. If the members of a
// batch share an operand, the tape sums its gradient over them.
Variable matmul(const Variable& a, const Variable& b, bool ta, bool tb) {
  return record("matmul", matmul(a.value(), b.value(), ta, tb), {a, b},
                [a = SavedTensor(a.value()), b = SavedTensor(b.value()), ta, tb](const Tensor& g) -> Gradients {
                  return {ta ? matmul(b(), g, tb, true) : matmul(g, b(), false, !tb),
                          tb ? matmul(g, a(), true, ta) : matmul(a(), g, !ta, false)};
                });
}

// y = x W^T + b over rows:  dx = dy W,  dW = dy^T x,  db = the sum of dy over rows (by the tape).
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, std::optional<Unary> activation) {
  // The activation's gradient needs the product. Otherwise the product's kernel computes it, without a pass of its own.
  if (activation && recording()) return unary(*activation, linear(x, weight, bias));
  const bool with_bias = bias.defined();
  const auto gradient = [x = SavedTensor(x.value()), weight = SavedTensor(weight.value()), with_bias](const Tensor& g) {
    const auto as_matrix = [](const Tensor& t) { return t.reshape({t.shape().without(-1).elements(), t.size(-1)}); };
    const Tensor dy = as_matrix(g);
    Gradients result{matmul(dy, weight()).reshape(x().shape()), matmul(dy, as_matrix(x()), true, false)};
    if (with_bias) result.push_back(g);
    return result;
  };
  const Tensor y = linear(x.value(), weight.value(), with_bias ? bias.value() : Tensor(), activation);
  return with_bias ? record("linear", y, {x, weight, bias}, gradient) : record("linear", y, {x, weight}, gradient);
}

}  // namespace cairn
