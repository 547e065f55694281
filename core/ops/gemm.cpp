#include "core/ops.h"

#include <optional>

#include "core/dispatch.h"
#include "core/kernels/gemm.h"
#include "core/ops/checks.h"

namespace cairn {

static void run_gemm(const Gemm& g, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& c) {
  CAIRN_RUN(
      "matmul", a,
      gemm<T>(stream, g, a.data<T>(), b.data<T>(), bias.defined() ? bias.data<T>() : nullptr, c.mutable_data<T>()));
}

Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
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
  Tensor c(appended(appended(leading, g.m), g.n), a.dtype(), a.device());
  g.batch = leading.elements();
  g.share_a = a.rank() == 2;
  g.share_b = b.rank() == 2;
  if (g.share_b && !transpose_a) g.m *= g.batch, g.batch = 1;  // one tall product
  run_gemm(g, a, b, {}, c);
  return c;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, std::optional<Unary> activation) {
  const Sizes s = expect("linear", {{"x", x, "*R I"}, {"weight", weight, "O I"}, optional({"bias", bias, "O"})});
  Tensor y(x.shape().with(-1, s['O']), x.dtype(), x.device());
  Gemm g;
  g.m = s['R'], g.n = s['O'], g.k = s['I'], g.transpose_b = true;
  g.activation = activation;
  run_gemm(g, x, weight, bias, y);
  return y;
}

}  // namespace cairn
