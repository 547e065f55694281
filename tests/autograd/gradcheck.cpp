#include "autograd/gradcheck.h"

#include <cmath>

#include "tests/ops/ops_test.h"

// x^2 with a given gradient.
static Variable square_with(const Variable& x, std::function<Tensor(const Tensor& dx)> distort) {
  return record("square", binary(Binary::multiply, x.value(), x.value()).value(), {x},
                [x = x.value(), distort](const Tensor& g) -> Gradients {
                  return {distort(affine(binary(Binary::multiply, x, g), 2).value())};
                });
}

TEST_CASE("check_gradient accepts a right gradient and finds a wrong one", "[gradcheck]") {
  const Tensor x = random_tensor({2, 3});
  const auto error = [&](std::function<Tensor(const Tensor&)> distort) {
    return check_gradient([&](const auto& in) { return square_with(in[0], distort); }, {x}).error;
  };
  CHECK(error([](const Tensor& dx) { return dx; }) <= tolerance::gradient);
  CHECK(error([](const Tensor& dx) { return affine(dx, -1).value(); }) > tolerance::gradient);
  CHECK(error([](const Tensor& dx) { return affine(dx, 1 + 1e-5).value(); }) > tolerance::gradient);
  CHECK(error([](const Tensor&) { return Tensor(); }) > tolerance::gradient);
  for (size_t element : {0, 3, 5})  // one NaN, anywhere
    CHECK(error([=](const Tensor& dx) {
            Tensor wrong = dx.clone();
            wrong.mutable_data<double>()[element] = NAN;
            return wrong;
          }) > tolerance::gradient);
}

TEST_CASE("check_gradient says which element of which input is wrong", "[gradcheck]") {
  const auto result = check_gradient(
      [](const auto& in) {
        return in[0] + square_with(in[1], [](const Tensor& dx) {
                 Tensor wrong = dx.clone();
                 wrong.mutable_data<double>()[2] += 0.5;
                 return wrong;
               });
      },
      {random_tensor({2, 3}), random_tensor({3}, DType::float64, 2)});
  CHECK_ERROR(throw Error(result.where), "input 1, element 2: analytic ");
  CHECK(result.error > 0.1);
}

TEST_CASE("check_gradient finds an input whose gradient is missing, and ignores an unused one", "[gradcheck]") {
  const Tensor x = random_tensor({3});
  CHECK(check_gradient([](const auto& in) { return Variable(in[0].value()) * in[1]; }, {x, x}).error > 0.1);
  CHECK(check_gradient([](const auto& in) { return square(in[1]); }, {x, x}).error <= tolerance::gradient);
}

TEST_CASE("check_gradient requires float64 and does not change its inputs", "[gradcheck]") {
  const Tensor x = random_tensor({3}), before = x.clone();
  check_gradient([](const auto& in) { return exp(in[0]); }, {x});
  CHECK(same_bits(x, before));
  CHECK_ERROR(check_gradient([](const auto& in) { return in[0]; }, {x.cast(DType::float32)}),
              "check_gradient: expected float64 inputs, got float32");
}
