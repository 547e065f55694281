#include "nn/layers.h"

#include <cmath>

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

TEST_CASE("feed forward is linear, activation, linear", "[nn]") {
  Generator generator(1);
  const Variable x(random_tensor({2, 3, 4}, DType::float32));
  for (Activation activation : {Activation::gelu, Activation::relu}) {
    const FeedForward layer(4, 6, activation, 0, generator);
    const Variable hidden = layer.linear1(x);
    const Variable expected = layer.linear2(activation == Activation::gelu ? gelu(hidden) : relu(hidden));
    CHECK(difference(layer(x, {}).value(), expected.value()) == 0);
  }
}

TEST_CASE("dropout acts in training alone, fresh at every step, layer and place", "[nn]") {
  Generator generator(1);
  const Variable x(Tensor::full({100}, 1));
  const auto run = [&](bool training, uint32_t layer, Purpose purpose) {
    return apply_dropout(x, 0.5, Context{training, &generator, layer}, purpose).value().to_vector<float>();
  };
  const auto first = run(true, 0, Purpose::feed_forward_dropout);
  CHECK(run(false, 0, Purpose::feed_forward_dropout) == x.value().to_vector<float>());
  CHECK(run(true, 0, Purpose::feed_forward_dropout) == first);
  CHECK(run(true, 1, Purpose::feed_forward_dropout) != first);
  CHECK(run(true, 0, Purpose::attention_output_dropout) != first);
  generator.advance();
  CHECK(run(true, 0, Purpose::feed_forward_dropout) != first);
}

TEST_CASE("an embedding picks rows, and refuses a token it does not have", "[nn]") {
  Generator generator(1);
  const Embedding embedding(5, 3, generator);
  const auto rows = embedding(int32s({4, 0, -1})).value().to_vector<float>();
  const auto weight = embedding.weight.value().to_vector<float>();
  for (size_t j = 0; j < 3; ++j) {
    CHECK(rows[j] == weight[12 + j]);
    CHECK(rows[3 + j] == weight[j]);
    CHECK(rows[6 + j] == 0);
  }
  CHECK_THROWS_WITH(embedding(int32s({5})), Catch::Matchers::ContainsSubstring("index[0] is 5, expected -1 to 4"));
}
