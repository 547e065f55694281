// The names of the draws of a forward pass. Two draws of one name would give the same numbers.
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

// The draws of forward(model, x, context) in training. x: [2, 16, 8].
template <class Model, class Options, class F>
Draws draws_of(Options options, F&& forward) {
  options.heads = 2, options.head_size = 4, options.feed_forward = 8;
  options.dropout = 0.3, options.attention_dropout = 0.2;
  Generator generator(1);
  const Model model(options, generator);
  Draws draws;
  generator.record_draws(&draws);
  const Context context{.training = true, .generator = &generator};
  forward(model, Variable(random_tensor({2, 16, 8}, DType::float32)), context);
  return draws;
}

Draws draws_of_encoder(const std::string& attention) {
  TransformerOptions options;
  options.layers = 3;
  options.attention = attention;
  return draws_of<Encoder>(options, [](const auto& encoder, const auto& x, const auto& c) { encoder(x, {}, c); });
}

int64_t count(const Draws& draws, Purpose purpose) {
  return std::count_if(draws.begin(), draws.end(), [&](const auto& draw) { return draw.second == purpose; });
}

}  // namespace

TEST_CASE("every draw of a forward pass has a name of its own", "[transformer]") {
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
  CHECK(count(draws_of_encoder("lsh-2:chunk=4"), Purpose::rotations) == 3);

  const Draws of_decoder = draws_of<DecoderLayer>(
      DecoderOptions(), [](const auto& layer, const auto& x, const auto& c) { layer(x, x, {}, c); });
  CHECK(std::set(of_decoder.begin(), of_decoder.end()).size() == of_decoder.size());
  CHECK(count(of_decoder, Purpose::attention_dropout) == 2);
}
