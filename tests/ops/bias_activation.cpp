#include <cmath>

#include "tests/ops/ops_test.h"

namespace {

constexpr Activation activations[] = {Activation::gelu, Activation::relu};

// The reference of simpler operations.
Variable composed(const Variable& x, const Variable& bias, Activation f) {
  return f == Activation::gelu ? gelu(x + bias) : relu(x + bias);
}

}  // namespace

TEST_CASE("bias_activation agrees with its definition, and so does its gradient", "[bias_activation]") {
  for (const Shape& shape : odd_shapes())
    for (DType dtype : {DType::float32, DType::float64})
      for (Activation f : activations) {
        INFO(shape << ' ' << name(dtype) << (f == Activation::gelu ? " gelu" : " relu"));
        const Tensor x = random_tensor(shape, dtype, 1), bias = random_tensor({shape[-1]}, dtype, 2),
                     dy = random_tensor(shape, dtype, 3);
        auto y = as_double(x), dx = as_double(dy);
        const auto shift = as_double(bias);
        const Unary op = f == Activation::gelu ? Unary::gelu : Unary::relu;
        for (size_t i = 0; i < y.size(); ++i) {
          // The sum is rounded to the type; relu's step is at 0.
          const double sum = dtype == DType::float32 ? double(float(y[i]) + float(shift[i % shift.size()]))
                                                     : y[i] + shift[i % shift.size()];
          y[i] = formula(op, sum), dx[i] *= reference_derivative(op, sum);
        }
        CHECK(difference(bias_activation(x, bias, f), y) <= tolerance_of(dtype));
        CHECK(difference(bias_activation_backward(x, bias, f, dy), dx) <= tolerance_of(dtype));
      }
}

TEST_CASE("bias_activation is the composed sum and activation, to the bit, and so are its gradients",
          "[bias_activation]") {
  for (const Shape& shape : odd_shapes())
    for (DType dtype : {DType::float32, DType::float64})
      for (Activation f : activations) {
        INFO(shape << ' ' << name(dtype) << (f == Activation::gelu ? " gelu" : " relu"));
        const Tensor dy = random_tensor(shape, dtype, 3);
        const auto run = [&](auto&& function) {
          const Variable x(random_tensor(shape, dtype, 1), true), bias(random_tensor({shape[-1]}, dtype, 2), true);
          const Variable y = function(x, bias, f);
          backward(y, dy);
          return std::vector<Tensor>{y.value(), x.grad(), bias.grad()};
        };
        const auto fused = run([](auto&... in) { return bias_activation(in...); }), expected = run(composed);
        for (size_t i = 0; i < 3; ++i) CHECK(same_bits(fused[i], expected[i]));
      }
}

TEST_CASE("bias_activation at its edges", "[bias_activation]") {
  const Tensor x = Tensor::from<float>({-INFINITY, INFINITY, NAN, -1, 1}, {5}), bias = Tensor::zeros({5});
  for (Activation f : activations) {
    const auto y = bias_activation(x, bias, f).to_vector<float>();
    CHECK(y[0] == 0);
    CHECK(y[1] == INFINITY);
    CHECK(std::isnan(y[2]));
    const auto at_zero = bias_activation_backward(x, affine(x, -1), f, Tensor::full({5}, 1)).to_vector<float>();
    CHECK(at_zero[3] == (f == Activation::gelu ? 0.5f : 0.0f));  // of the sum, 0
  }
}

TEST_CASE("gradients of bias_activation", "[bias_activation][grad]") {
  for (Activation f : activations)
    for (const Shape& shape : {Shape{3, 5}, Shape{2, 2, 3}, Shape{4}})
      CHECK_GRADIENT([f](const auto& in) { return bias_activation(in[0], in[1], f); }, random_tensor(shape),
                     random_tensor({shape[-1]}, DType::float64, 2));
}

TEST_CASE("bias_activation gives the same bits on any number of threads", "[bias_activation]") {
  const Tensor x = random_tensor({301, 67}, DType::float32), bias = random_tensor({67}, DType::float32, 2);
  check_any_threads([&] {
    return std::vector<Tensor>{bias_activation(x, bias, Activation::gelu),
                               bias_activation_backward(x, bias, Activation::gelu, x)};
  });
}

TEST_CASE("bias_activation refuses what it cannot compute", "[bias_activation]") {
  const Tensor x({2, 3}), bias({3});
  CHECK_ERROR(bias_activation(x, Tensor({2}), Activation::gelu),
              "bias_activation: expected bias of shape [3], got [2]");
  CHECK_ERROR(bias_activation(x, Tensor(), Activation::gelu), "bias_activation: bias was never given a value");
  CHECK_ERROR(bias_activation(x, bias.cast(DType::float64), Activation::gelu),
              "bias_activation: bias is float64, x is float32");
  CHECK_ERROR(bias_activation(x.cast(DType::int32), bias, Activation::relu),
              "bias_activation: x must be floating, got int32");
  CHECK_ERROR(bias_activation(Tensor(Shape{}), bias, Activation::relu),
              "bias_activation: expected x of shape [..., C], got []");
  CHECK_ERROR(bias_activation_backward(x, bias, Activation::relu, Tensor({3, 2})),
              "bias_activation: expected the gradient of shape [2, 3], got [3, 2]");
  CHECK_ERROR(bias_activation_backward(x, bias, Activation::relu, x.cast(DType::float64)),
              "bias_activation: the gradient is float64, x is float32");
  CHECK_NEEDS_CUDA(bias_activation(elsewhere({3, 0}), elsewhere({0}), Activation::gelu), "bias_activation");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("bias_activation") {
  // Rows of packs and of single elements; in the last one, more than the threads of the largest grid take at once.
  for (const Shape& shape : {Shape{0, 5}, Shape{3, 0}, Shape{1, 1}, Shape{7}, Shape{67, 13}, Shape{2, 3, 8},
                             Shape{129, 260}, Shape{5003, 211}})
    for (const Activation activation : {Activation::gelu, Activation::relu})
      for (const int64_t skip : {0, 1}) {
        if (shape.elements() > 100'000 && (skip || activation == Activation::gelu)) continue;
        cases.add(label(activation == Activation::gelu ? "bias and gelu" : "bias and relu", shape) +
                      (skip ? ", not aligned" : ""),
                  [=](const Bench& bench) -> Results {
                    const Tensor x = bench.shifted(shape, -2, 2, 1, skip),
                                 bias = bench.shifted({shape[-1]}, -2, 2, 2, skip),
                                 dy = bench.shifted(shape, -2, 2, 3, skip);
                    return {{"y", bias_activation(x, bias, activation)},
                            {"dx", bias_activation_backward(x, bias, activation, dy)}};
                  });
      }
  cases.add("bias and activation with gradients", [](const Bench& bench) {
    const Variable x = bench.variable(bench.normal({3, 7, 12})), bias = bench.variable(bench.normal({12}, 2));
    return with_gradients(bench, bias_activation(x, bias, Activation::gelu), {{"x", x}, {"bias", bias}});
  });
}

#endif
