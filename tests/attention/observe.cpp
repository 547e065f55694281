#include "nn/attention/observe.h"

#include "nn/transformer.h"
#include "tests/ops/ops_test.h"

namespace {

TransformerOptions two_layers(const char* attention) {
  TransformerOptions options;
  options.layers = 2, options.heads = 2, options.head_size = 4, options.feed_forward = 8;
  options.attention = attention;
  return options;
}

}  // namespace

TEST_CASE("an observed encoder computes what it computes unobserved", "[attention]") {
  for (const char* spec : {"full", "shared-full", "i-clustered-3:topk=2,scale=0.8"}) {
    INFO(spec);
    Generator generator(7);
    Encoder encoder(two_layers(spec), generator);
    const Variable x(random_tensor({2, 9, 8}, DType::float32));
    const Context context{.generator = &generator};
    const std::string fields = describe(encoder);
    const Tensor plain = encoder(x, {}, context).value();
    Tensor observed;
    auto seen = observe(encoder.attentions(), [&] {
      CHECK(describe(encoder) == fields);
      observed = encoder(x, {}, context).value();
    });
    CHECK(same_bits(plain, observed));
    CHECK(describe(encoder) == fields);
    REQUIRE(seen.size() == 2);
    for (const Observation& layer : seen) {
      CHECK(layer.q.shape() == Shape{2, 9, 2, 4});
      CHECK(difference(sum(layer.weights, {3}).value(), Tensor::full({2, 2, 9}, 1)) <= tolerance::float32);
      const bool clustered = std::string(spec)[0] == 'i';
      CHECK(layer.choices.labels.defined() == clustered);
      // Full attention of the same q and k, with the same scale.
      const auto full = make_attention(clustered ? "full:scale=0.8" : "full");
      CHECK(difference(layer.full, attention_weights(*full, layer.q, layer.k, {}, {})) <= tolerance::float32);
      CHECK((difference(layer.full, layer.weights) > 0.01) == clustered);
    }
    // An observer that has choices replays them, without a random number.
    for (size_t i = 0; i < 2; ++i) encoder.layers[i]->attention.observation = &seen[i];
    CHECK(same_bits(encoder(x, {}, {}).value(), plain));
  }
}

TEST_CASE("observers leave an encoder whose pass fails", "[attention]") {
  Generator generator(7);
  Encoder encoder(two_layers("clustered-3"), generator);
  const Variable x(random_tensor({1, 5, 8}, DType::float32));
  AttentionMask causal;
  causal.causal = true;
  CHECK_THROWS_AS(observe(encoder.attentions(), [&] { encoder(x, causal, {.generator = &generator}); }), UsageError);
  for (const auto& layer : encoder.layers) CHECK(layer->attention.observation == nullptr);
}
