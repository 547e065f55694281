// What a forward pass draws, by name: two draws of one name would be the same numbers.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nn/decoder.h"
#include "nn/transformer.h"
#include "tests/attention/spec_of.h"
#include "tests/ops/ops_test.h"

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
