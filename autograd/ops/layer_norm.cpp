#include "core/kernels/layer_norm.h"

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double epsilon) {
  const Tensor w = weight.beside(x), b = bias.beside(x);
  const Sizes s = expect("layer_norm", {{"x", x, "*R C"}, {"weight", w, "C"}, {"bias", b, "C"}});
  const Rows size{s['R'], s['C']};
  const DType sums = sums_of(x);
  Tensor y = empty_like(x), mean({size.rows}, sums, x.device()), rstd({size.rows}, sums, x.device());
  CAIRN_RUN("layer_norm", y,
            layer_norm_forward<T>(stream, size, epsilon, x.data<T>(), w.data<T>(), b.data<T>(), y.mutable_data<T>(),
                                  mean.mutable_data<Accum<T>>(), rstd.mutable_data<Accum<T>>()));
  return record("layer_norm", y, {x, weight, bias},
                [size, x = SavedTensor(x), weight = SavedTensor(w), mean, rstd](const Tensor& g) -> Gradients {
                  Tensor dx = empty_like(g), dweight({size.cols}, sums_of(g), g.device()), dbias = empty_like(dweight);
                  CAIRN_RUN(
                      "layer_norm", g,
                      layer_norm_backward<T>(stream, size, x().data<T>(), weight().data<T>(), mean.data<Accum<T>>(),
                                             rstd.data<Accum<T>>(), g.data<T>(), dx.mutable_data<T>(),
                                             dweight.mutable_data<Accum<T>>(), dbias.mutable_data<Accum<T>>()));
                  return {dx, dweight, dbias};
                });
}

}  // namespace cairn
