// What a forward pass draws, by name: two draws of one name would be the same numbers.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nn/transformer.h"
#include "tests/attention/spec_of.h"
#include "tests/nn/module_test.h"

namespace {

using Draws = std::vector<std::pair<uint32_t, Purpose>>;

Draws draws_of_encoder(const std::string& attention) {
  TransformerOptions options;
  options.layers = 3, options.heads = 2, options.head_size = 4, options.feed_forward = 8;
  options.attention = attention, options.dropout = 0.3, options.attention_dropout = 0.2;
  Generator generator(1);
  const Encoder encoder(options, generator);
  RandomStream random(1, 0, Purpose::test);
  const Variable x(random_normal({2, 16, options.features()}, random));
  Draws draws;
  generator.record_draws(&draws);
  encoder(x, {}, {true, &generator});
  return draws;
}

struct Step {
  std::vector<Tensor> by_example;  // the output, and the input's gradient
  std::vector<Tensor> parameters;  // their gradients
};

// A forward and a backward pass in training, of examples [first, end) of five, whose elements are no multiple of 4.
Step step_of_encoder(const std::string& attention, int64_t first, int64_t end) {
  TransformerOptions options;
  options.layers = 2, options.heads = 3, options.head_size = 5, options.feed_forward = 7;
  options.attention = attention, options.dropout = 0.3, options.attention_dropout = 0.2;
  Generator generator(1);
  Encoder encoder(options, generator);
  convert_to(encoder, DType::float64);
  const Shape shape{5, 17, options.features()};
  const Variable x(random_tensor(shape).slice(first, end), true);
  generator.set_first_example(first);
  const Variable y = encoder(x, {}, {true, &generator});
  backward(y, random_tensor(shape, DType::float64, 2).slice(first, end));
  Step step{{y.value(), x.grad()}, {}};
  for (const Variable& parameter : parameters(encoder)) step.parameters.push_back(parameter.grad());
  return step;
}

int64_t count(const Draws& draws, Purpose purpose) {
  return std::count_if(draws.begin(), draws.end(), [&](const auto& draw) { return draw.second == purpose; });
}

}  // namespace

TEST_CASE("every draw of an encoder's forward has a name of its own", "[transformer]") {
  for (const AttentionVariant* variant : attention_variants()) {
    const Draws draws = draws_of_encoder(spec_of(*variant, 4, 4));
    INFO(variant->name);
    CHECK(std::set(draws.begin(), draws.end()).size() == draws.size());
    // What every layer drops: the attention's output, the hidden features, the feed forward's output.
    for (const Purpose purpose :
         {Purpose::attention_output_dropout, Purpose::feed_forward_dropout, Purpose::feed_forward_output_dropout})
      CHECK(count(draws, purpose) == 3);
    for (const auto& [layer, purpose] : draws) CHECK(layer < 3);
  }
  const Draws draws = draws_of_encoder("i-clustered-4:topk=4");
  for (const Purpose purpose :
       {Purpose::planes, Purpose::clusters, Purpose::attention_dropout, Purpose::attention_rest_dropout})
    CHECK(count(draws, purpose) == 3);
  CHECK(draws.size() == 21);
}

TEST_CASE("an encoder draws for the parts of a batch what it draws for them in the whole batch", "[transformer]") {
  for (const std::string attention : {"full", "i-clustered-4:topk=3"}) {
    INFO(attention);
    const Step whole = step_of_encoder(attention, 0, 5), left = step_of_encoder(attention, 0, 2),
               right = step_of_encoder(attention, 2, 5);
    for (size_t i = 0; i < 2; ++i) {
      INFO("result " << i);
      CHECK(same_bits(left.by_example[i], whole.by_example[i].slice(0, 2)));
      CHECK(same_bits(right.by_example[i], whole.by_example[i].slice(2, 5)));
    }
    for (size_t i = 0; i < whole.parameters.size(); ++i) {  // sums over examples, in another order
      INFO("parameter " << i);
      auto sum = as_double(left.parameters[i]);
      const auto other = as_double(right.parameters[i]);
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += other[j];
      CHECK(difference(whole.parameters[i], sum) <= tolerance::float64);
    }
  }
}
