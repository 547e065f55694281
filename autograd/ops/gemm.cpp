#include "core/kernels/gemm.h"

#include <optional>

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

static void run_gemm(const Gemm& g, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& c) {
  CAIRN_RUN("matmul", a, gemm<T>(stream, g, a.data<T>(), b.data<T>(), data_or_null<T>(bias), c.mutable_data<T>()));
}

// op(a) op(b). Not `rounded`: a product of bfloat16 is float32.
static Tensor product(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b, bool rounded = true) {
  expect("matmul", {{"the first operand", a, "*A I J"}, {"the second operand", b, "*B K L"}});
  Gemm g;
  g.transpose_a = transpose_a, g.transpose_b = transpose_b;
  g.m = a.size(transpose_a ? -1 : -2), g.k = a.size(transpose_a ? -2 : -1), g.n = b.size(transpose_b ? -2 : -1);
  check(b.size(transpose_b ? -1 : -2) == g.k, "matmul: ", a.shape(), transpose_a ? " transposed" : "", " and ",
        b.shape(), transpose_b ? " transposed" : "", " do not match: inner sizes ", g.k, " and ",
        b.size(transpose_b ? -1 : -2));
  const Shape leading_a = a.shape().without(-1).without(-1), leading_b = b.shape().without(-1).without(-1);
  check(leading_a == leading_b || a.rank() == 2 || b.rank() == 2, "matmul: leading axes of ", a.shape(), " and ",
        b.shape(), " differ");
  const Shape leading = a.rank() >= b.rank() ? leading_a : leading_b;
  Tensor c(appended(appended(leading, g.m), g.n), rounded ? a.dtype() : sums_of(a), a.device());
  g.batch = leading.elements();
  g.share_a = a.rank() == 2;
  g.share_b = b.rank() == 2;
  if (g.share_b && !transpose_a) g.m *= g.batch, g.batch = 1;  // one tall product
  if (rounded)
    run_gemm(g, a, b, {}, c);
  else
    CAIRN_RUN("matmul", a, gemm_sums<T>(stream, g, a.data<T>(), b.data<T>(), c.mutable_data<Accum<T>>()));
  return c;
}

// C = op(A) op(B):  d op(A) = dC op(B)^T,  d op(B) = op(A)^T dC; each has the layout of A or B. If the members of a
// batch share an operand, the tape sums its gradient over them.
Variable matmul(const Variable& a, const Variable& b, bool ta, bool tb) {
  return record("matmul", product(a, b, ta, tb), {a, b},
                [a = SavedTensor(a), b = SavedTensor(b), ta, tb](const Tensor& g) -> Gradients {
                  return {ta ? product(b(), g, tb, true) : product(g, b(), false, !tb),
                          tb ? product(g, a(), true, ta) : product(a(), g, !ta, false)};
                });
}

// y = x W^T + b over rows:  dx = dy W,  dW = dy^T x,  db = the sum of dy over rows (by the tape). If x is bfloat16,
// W and b may be float32. Their gradients are float32.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, std::optional<Unary> activation) {
  // The activation's gradient needs the product. Otherwise the product's kernel computes it, without a pass of its own.
  const bool recorded = recording() && (x.requires_grad() || weight.requires_grad() || bias.requires_grad());
  if (activation && recorded) return unary(*activation, linear(x, weight, bias));
  const Tensor w = weight.beside(x), b = bias.beside(x);
  const Sizes s = expect("linear", {{"x", x, "*R I"}, {"weight", w, "O I"}, optional({"bias", b, "O"})});
  Tensor y(x.shape().with(-1, s['O']), x.dtype(), x.device());
  Gemm g;
  g.m = s['R'], g.n = s['O'], g.k = s['I'], g.transpose_b = true;
  g.activation = activation;
  run_gemm(g, x, w, b, y);
  return record("linear", y, {x, weight, bias},
                [x = SavedTensor(x), weight = SavedTensor(w)](const Tensor& dy) -> Gradients {
                  const auto as_matrix = [](const Tensor& t) {
                    return t.reshape({t.shape().without(-1).elements(), t.size(-1)});
                  };
                  const Tensor rows = as_matrix(dy);
                  return {product(rows, weight(), false, false).reshape(x().shape()),
                          product(rows, as_matrix(x()), true, false, false), dy};
                });
}

}  // namespace cairn
