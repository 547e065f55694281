#include "core/ops.h"

#include "core/dispatch.h"
#include "core/kernels/layer_norm.h"
#include "core/ops/checks.h"

namespace cairn {

LayerNormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Sizes s = expect("layer_norm", {{"x", x, "*R C"}, {"weight", weight, "C"}, {"bias", bias, "C"}});
  const Rows size{s['R'], s['C']};
  LayerNormResult result{empty_like(x), Tensor({size.rows}, sums_of(x), x.device()),
                         Tensor({size.rows}, sums_of(x), x.device())};
  CAIRN_RUN("layer_norm", x,
            layer_norm_forward<T>(stream, size, epsilon, x.data<T>(), weight.data<T>(), bias.data<T>(),
                                  result.y.mutable_data<T>(), result.mean.mutable_data<Accum<T>>(),
                                  result.rstd.mutable_data<Accum<T>>()));
  return result;
}

LayerNormGradient layer_norm_backward(const Tensor& x, const Tensor& weight, const LayerNormResult& saved,
                                      const Tensor& dy) {
  const Sizes s = expect("layer_norm", {{"x", x, "*R C"},
                                        {"weight", weight, "C"},
                                        {"the gradient", dy, "*R C"},
                                        of_type(sums_of(x), "the saved mean", saved.mean, "R"),
                                        of_type(sums_of(x), "the saved rstd", saved.rstd, "R")});
  const Rows size{s['R'], s['C']};
  LayerNormGradient g{empty_like(x), empty_like(weight), empty_like(weight)};
  CAIRN_RUN("layer_norm", x,
            layer_norm_backward<T>(stream, size, x.data<T>(), weight.data<T>(), saved.mean.data<Accum<T>>(),
                                   saved.rstd.data<Accum<T>>(), dy.data<T>(), g.dx.mutable_data<T>(),
                                   g.dweight.mutable_data<T>(), g.dbias.mutable_data<T>()));
  return g;
}

}  // namespace cairn
