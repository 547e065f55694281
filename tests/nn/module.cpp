#include "nn/module.h"

#include <algorithm>
#include <cmath>

#include "nn/transformer.h"
#include "tests/ops/ops_test.h"

using Catch::Matchers::ContainsSubstring;

static TransformerOptions tiny(const char* attention = "full") {
  TransformerOptions options;
  options.layers = 2, options.heads = 2, options.head_size = 3, options.feed_forward = 5;
  options.attention = attention;
  return options;
}

TEST_CASE("parameters are named by the path to their field", "[nn]") {
  Generator generator(1);
  TransformerOptions options = tiny("inducing-2");
  options.layers = 1, options.final_norm = true;
  Encoder encoder(options, generator);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : named_parameters(encoder)) names.push_back(name);
  CHECK(names == std::vector<std::string>{
                     "layers.0.attention.query.weight", "layers.0.attention.query.bias",
                     "layers.0.attention.key.weight", "layers.0.attention.key.bias", "layers.0.attention.value.weight",
                     "layers.0.attention.value.bias", "layers.0.attention.out.weight", "layers.0.attention.out.bias",
                     "layers.0.attention.attention.points", "layers.0.feed_forward.linear1.weight",
                     "layers.0.feed_forward.linear1.bias", "layers.0.feed_forward.linear2.weight",
                     "layers.0.feed_forward.linear2.bias", "layers.0.norm1.weight", "layers.0.norm1.bias",
                     "layers.0.norm2.weight", "layers.0.norm2.bias", "final_norm.weight", "final_norm.bias"});
  CHECK(parameter_count(encoder) == 4 * (6 * 6 + 6) + 2 * 2 * 3 + (6 * 5 + 5) + (5 * 6 + 6) + 3 * 2 * 6);
  CHECK(parameters(encoder).size() == names.size());
  const std::string text = describe(encoder);
  CHECK_THAT(text, ContainsSubstring("layers.0.feed_forward.linear1.weight [5, 6]\n"));
  CHECK_THAT(text, ContainsSubstring(std::to_string(parameter_count(encoder)) + " parameters"));
}

TEST_CASE("a model with shared keys has no key projection", "[nn]") {
  Generator generator(1);
  Encoder encoder(tiny("shared-full"), generator);
  for (const auto& [name, parameter] : named_parameters(encoder)) CHECK(name.find("key") == std::string::npos);
}

TEST_CASE("initial weights are those of the seed, each parameter its own, in the documented range", "[nn]") {
  const auto weights = [](uint64_t seed) {
    Generator generator(seed);
    Encoder encoder(tiny(), generator);
    std::vector<std::vector<float>> all;
    for (const Variable& x : parameters(encoder)) all.push_back(x.value().to_vector<float>());
    return all;
  };
  const auto first = weights(1);
  CHECK(first == weights(1));
  CHECK(first != weights(2));
  CHECK(first[0] != first[2]);  // query and key

  Generator generator(3);
  const Linear linear(100, 50, generator);
  const auto weight = linear.weight.value().to_vector<float>();
  const auto [lowest, highest] = std::minmax_element(weight.begin(), weight.end());
  CHECK((*lowest >= -0.1f && *lowest < -0.099f));  // of 5000 uniform numbers
  CHECK((*highest <= 0.1f && *highest > 0.099f));
  for (float x : linear.bias.value().to_vector<float>()) CHECK(std::abs(x) <= 0.1f);

  const Embedding embedding(100, 100, generator);
  double sum = 0, squares = 0;
  for (float x : embedding.weight.value().to_vector<float>()) sum += x, squares += double(x) * x;
  CHECK(std::abs(sum / 1e4) < 0.05);  // five standard deviations of the mean
  CHECK(std::abs(squares / 1e4 - 1) < 5 * std::sqrt(2e-4));

  const LayerNorm norm(4);
  CHECK(norm.weight.value().to_vector<float>() == std::vector<float>(4, 1));
  CHECK(norm.bias.value().to_vector<float>() == std::vector<float>(4, 0));
}

TEST_CASE("parameters are converted in place", "[nn]") {
  Generator generator(1);
  Linear linear(3, 2, generator);
  const Variable held = linear.weight;
  convert_to(linear, DType::float64);
  CHECK(held.dtype() == DType::float64);
  CHECK(linear(Variable(random_tensor({4, 3}))).dtype() == DType::float64);
}

TEST_CASE("place() sets the element type of activations of all inner modules, and leaves parameters", "[nn]") {
  Generator generator(1);
  Encoder encoder(tiny(), generator);
  const Variable held = encoder.layers[1]->norm2.weight;
  place(encoder, {Device::cpu, DType::float64});
  CHECK((encoder.activations == DType::float64 && encoder.layers[1]->norm2.activations == DType::float64));
  CHECK(held.dtype() == DType::float32);
}

TEST_CASE("a forward pass that draws needs a generator, and says so", "[nn]") {
  Generator generator(1);
  Encoder encoder(tiny("clustered-2"), generator);
  const Variable x(random_tensor({1, 4, 6}, DType::float32));
  CHECK_THROWS_WITH(encoder(x, {}, {}), ContainsSubstring("needs a generator"));
  CHECK_NOTHROW(encoder(x, {}, {.generator = &generator}));
}
