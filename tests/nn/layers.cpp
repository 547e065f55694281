#include "nn/layers.h"

#include <cmath>
#include <tuple>

#include "tests/ops/ops_test.h"

TEST_CASE("sinusoidal positions are those of the formula", "[nn]") {
  const Tensor positions = sinusoidal_positions(7, 5);
  for (int p = 0; p < 7; ++p)
    for (int j = 0; j < 5; ++j) {
      const double angle = p / std::pow(10000.0, (j - j % 2) / 5.0);
      CHECK(std::abs(positions.data<float>()[p * 5 + j] - (j % 2 ? std::cos(angle) : std::sin(angle))) < 1e-6);
    }
  CHECK(sinusoidal_positions(0, 4).elements() == 0);
}

TEST_CASE("positions are added in the input's element type, from any one on", "[nn]") {
  const SinusoidalPositions positions;
  for (const auto& [type, n, first, features] : {std::tuple(DType::float32, 3, 0, 4),
                                                 {DType::float32, 4, 5, 4},
                                                 {DType::float64, 4, 5, 4},
                                                 {DType::float32, 2, 1, 4},
                                                 {DType::float32, 2, 1, 6}}) {
    const Tensor x = random_tensor({2, n, features}, type);
    CHECK(same_bits(positions(x, first), x + sinusoidal_positions(9, features).slice(first, first + n).cast(type)));
  }
}

TEST_CASE("feed forward is linear, activation, linear", "[nn]") {
  Generator generator(1);
  const Variable x(random_tensor({2, 3, 4}, DType::float32));
  for (Unary activation : {Unary::gelu, Unary::relu}) {
    const FeedForward layer(4, 6, activation, 0, generator);
    const Variable hidden = layer.linear1(x);
    const Variable expected = layer.linear2(unary(activation, hidden));
    CHECK(difference(layer(x, {}).value(), expected.value()) == 0);
  }
}

TEST_CASE("dropout acts in training alone", "[nn]") {
  const Generator generator(1);
  const Variable x(Tensor::full({100}, 1));
  const auto run = [&](bool training) {
    const Context context{.training = training, .generator = &generator};
    return apply_dropout(x, 0.5, context, Purpose::feed_forward_dropout).value();
  };
  CHECK(same_bits(run(false), x.value()));
  CHECK_FALSE(same_bits(run(true), x.value()));
}
