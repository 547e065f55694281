#include <cmath>

#include "tests/ops/operation.h"

OPERATION("bias_activation") {
  op.make = [](const Shape& shape) { return Tensors{normal(shape), normal({shape[-1]}, 2)}; };
  op.forward = [](const Variables& t) {
    return Variables{bias_activation(t[0], t[1], Activation::gelu), bias_activation(t[0], t[1], Activation::relu)};
  };
  op.reference = [](const Tensors& t) {
    Tensors results;
    for (const bool relu : {false, true}) {
      std::vector<double> y = broadcasted(t[1], t[0].shape());
      const auto x = as_double(t[0]);
      for (size_t i = 0; i < y.size(); ++i) {
        const double sum = x[i] + y[i];
        y[i] = relu ? std::fmax(sum, 0) : sum * std::erfc(-sum / std::sqrt(2.0)) / 2;
      }
      results.push_back(from_doubles(y, t[0].shape()));
    }
    return results;
  };
  op.backward_reads = {0, 1};
  op.gradients_round_once = false;
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add({int64_t{1} << 60, 0});  // needs no time
  // More than the threads of the largest grid take at once. Of a million sums some are too near to relu's step at 0.
  op.add({5003, 211}).differences = false;
  op.refuses({Tensor({2, 3}), Tensor({2})}, "bias_activation: expected bias of shape [3], got [2]");
  op.refuses({Tensor({2, 3}), Tensor({3}, DType::float64)}, "bias_activation: bias is float64, x is float32");
  op.refuses({Tensor({2, 3}, DType::int32), Tensor({3})}, "bias_activation: x must be floating, got int32");
  op.refuses({Tensor(Shape{}), Tensor({3})}, "bias_activation: expected x of shape [..., C], got []");
}

TEST_CASE("bias_activation at its edges", "[bias_activation]") {
  const Tensor x = Tensor::from<float>({-INFINITY, INFINITY, NAN, -1, 1}, {5}), bias = Tensor::zeros({5});
  for (const Activation f : {Activation::gelu, Activation::relu}) {
    const auto y = bias_activation(x, bias, f).to_vector<float>();
    CHECK(y[0] == 0);
    CHECK(y[1] == INFINITY);
    CHECK(std::isnan(y[2]));
    const auto at_zero = bias_activation_backward(x, affine(x, -1), f, Tensor::full({5}, 1)).to_vector<float>();
    CHECK(at_zero[3] == (f == Activation::gelu ? 0.5f : 0.0f));  // of the sum, 0
  }
}

TEST_CASE("bias_activation's gradient refuses another shape", "[bias_activation]") {
  const Tensor x({2, 3}), bias({3});
  CHECK_ERROR(bias_activation_backward(x, bias, Activation::relu, Tensor({3, 2})),
              "bias_activation: expected the gradient of shape [2, 3], got [3, 2]");
  CHECK_ERROR(bias_activation_backward(x, Tensor({2}), Activation::relu, x),
              "bias_activation: expected bias of shape [3], got [2]");
}
