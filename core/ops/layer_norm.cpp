#include "core/ops.h"

#include "core/dispatch.h"
#include "core/kernels/layer_norm.h"
#include "core/ops/checks.h"

namespace cairn {

LayerNormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  check_operands("layer_norm", {{"x", x}, {"weight", weight}, {"bias", bias}});
  const Rows size = rows_of("layer_norm", x);
  check_shape("layer_norm", "weight", weight, {size.cols});
  check_shape("layer_norm", "bias", bias, {size.cols});
  LayerNormResult result{like(x), Tensor({size.rows}, sums_of(x), x.device()),
                         Tensor({size.rows}, sums_of(x), x.device())};
  CAIRN_RUN("layer_norm", x,
            layer_norm_forward<T>(stream, size, epsilon, x.data<T>(), weight.data<T>(), bias.data<T>(),
                                  result.y.mutable_data<T>(), result.mean.mutable_data<Accum<T>>(),
                                  result.rstd.mutable_data<Accum<T>>()));
  return result;
}

LayerNormGradient layer_norm_backward(const Tensor& x, const Tensor& weight, const LayerNormResult& saved,
                                      const Tensor& dy) {
  check_operands("layer_norm", {{"x", x}, {"weight", weight}, {"the gradient", dy}});
  check_shape("layer_norm", "the gradient", dy, x.shape());
  const Rows size = rows_of("layer_norm", x);
  check_shape("layer_norm", "weight", weight, {size.cols});
  check_tensor("layer_norm", "the saved mean", saved.mean, sums_of(x), x.device(), {size.rows});
  check_tensor("layer_norm", "the saved rstd", saved.rstd, sums_of(x), x.device(), {size.rows});
  LayerNormGradient g{like(x), like(weight), like(weight)};
  CAIRN_RUN("layer_norm", x,
            layer_norm_backward<T>(stream, size, x.data<T>(), weight.data<T>(), saved.mean.data<Accum<T>>(),
                                   saved.rstd.data<Accum<T>>(), dy.data<T>(), g.dx.mutable_data<T>(),
                                   g.dweight.mutable_data<T>(), g.dbias.mutable_data<T>()));
  return g;
}

}  // namespace cairn
