#include <cmath>

#include "tests/ops/operation.h"

namespace {

auto forward_with(double epsilon) {
  return [epsilon](const Variables& t) { return Variables{layer_norm(t[0], t[1], t[2], epsilon)}; };
}
auto reference_with(double epsilon) {
  return [epsilon](const Tensors& t) {
    return Tensors{from_doubles(reference_layer_norm(t[0], t[1], t[2], epsilon)[0], t[0].shape())};
  };
}

}  // namespace

OPERATION("layer_norm") {
  op.make = [](const Shape& shape) {
    return Tensors{uniform(shape, -1, 3), uniform({shape[-1]}, 0.5, 1.5, 2), normal({shape[-1]}, 3)};
  };
  op.forward = forward_with(0.01);
  op.reference = reference_with(0.01);
  op.backward_reads = {0, 1};
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add({301, 5});  // several pieces of 128 rows, which the gradients of weight and bias sum over
  for (const double epsilon : {1e-5, 0.1}) {
    Case& test = op.add(concat("epsilon ", epsilon), op.make({5, 67}));
    test.forward = forward_with(epsilon);
    test.reference = reference_with(epsilon);
  }
  Case& far = op.add("of a mean much larger than the spread",
                     {affine(normal({3, 64}), 1, 4096), normal({64}), normal({64}, 2)});
  far.tolerance = 4096 * 0x1p-23;  // half a unit in the last place of the mean, 4096 * 2^-24, goes into every y
  op.add("NaN stays in its row", {with(normal({3, 4}), {{5, NAN}}), normal({4}), normal({4}, 2)}).gradient = false;
  op.refuses({Tensor({2, 3}), Tensor({2}), Tensor({3})}, "layer_norm: expected weight of shape [3], got [2]");
  op.refuses({Tensor({2, 3}), Tensor({3}), Tensor({1, 3})}, "layer_norm: expected bias of shape [3], got [1, 3]");
  op.refuses({Tensor({2, 3}), Tensor({3}), Tensor({3}, DType::float64)}, "layer_norm: bias is float64, x is float32");
  op.refuses({Tensor(Shape{}), Tensor({3}), Tensor({3})}, "layer_norm: expected x of shape [..., C], got []");
  op.refuses({Tensor({2, 3}), Tensor({3}), elsewhere({0})}, "layer_norm: bias is on cuda, x on cpu");
}

TEST_CASE("layer_norm's gradient refuses what another call saved, and a short weight", "[layer_norm]") {
  const Tensor x = random_tensor({50, 7}), weight = random_tensor({7});
  const LayerNormResult own = layer_norm(x, weight, weight, 1e-5);
  const LayerNormResult smaller = layer_norm(x.slice(0, 3), weight, weight, 1e-5);
  const auto backward = [&](const Tensor& mean, const Tensor& rstd) {
    layer_norm_backward(x, weight, {own.y, mean, rstd}, x);
  };
  CHECK_NOTHROW(backward(own.mean, own.rstd));
  CHECK_ERROR(backward(Tensor(), own.rstd), "layer_norm: the saved mean was never given a value");
  CHECK_ERROR(backward(smaller.mean, own.rstd), "layer_norm: expected the saved mean of shape [50], got [3]");
  CHECK_ERROR(backward(own.mean, smaller.rstd), "layer_norm: expected the saved rstd of shape [50], got [3]");
  CHECK_ERROR(backward(own.mean, own.rstd.cast(DType::float32)),
              "layer_norm: expected the saved rstd to be float64, got float32");
  CHECK_ERROR(layer_norm_backward(x, weight, own, weight),
              "layer_norm: expected the gradient of shape [50, 7], got [7]");
  CHECK_ERROR(layer_norm_backward(x, weight.slice(0, 2), own, x), "layer_norm: expected weight of shape [7], got [2]");
}
