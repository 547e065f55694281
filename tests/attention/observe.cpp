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

// The sum of each row of [B, H, N, S].
std::vector<double> row_sums(const Tensor& weights) { return as_double(sum(weights, {3})); }

}  // namespace

TEST_CASE("rows of observed weights sum to one, and to zero without a key or a query", "[attention]") {
  const Generator generator(4);
  const Tensor q = random_tensor({2, 6, 1, 3}, DType::float32), k = random_tensor({2, 6, 1, 3}, DType::float32, 2);
  AttentionContext context;
  context.generator = &generator;
  for (const char* spec : {"full", "clustered-2", "i-clustered-2:topk=2", "oracle-top-2"}) {
    INFO(spec);
    AttentionMask mask;
    mask.query_lengths = int32s({6, 4}), mask.key_lengths = int32s({3, 0});
    const auto sums = row_sums(attention_weights(*make_attention(spec), q, k, mask, context));
    CHECK(difference(sums, std::vector<double>{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}) <= tolerance::float32);
  }
}

TEST_CASE("an observed encoder computes what it computes unobserved", "[attention]") {
  for (const char* spec : {"full", "shared-full", "i-clustered-3:topk=2,scale=0.8"}) {
    INFO(spec);
    Generator generator(7);
    Encoder encoder(two_layers(spec), generator);
    const Variable x(random_tensor({2, 9, 8}, DType::float32));
    const Context context{false, &generator};
    const std::string fields = describe(encoder);
    const Tensor plain = encoder(x, {}, context).value();
    Tensor observed;
    AttentionChoices reported;
    encoder.layers[1]->attention.report = &reported;
    const auto seen = observe(encoder.attentions(), [&] {
      CHECK(describe(encoder) == fields);
      observed = encoder(x, {}, context).value();
    });
    CHECK(same_bits(plain, observed));
    CHECK(describe(encoder) == fields);
    REQUIRE(seen.size() == 2);
    for (const Observation& layer : seen) {
      CHECK(layer.q.shape() == Shape{2, 9, 2, 4});
      CHECK(difference(row_sums(layer.weights), std::vector<double>(36, 1)) <= tolerance::float32);
      CHECK(difference(row_sums(layer.full), std::vector<double>(36, 1)) <= tolerance::float32);
      const bool clustered = std::string(spec)[0] == 'i';
      CHECK(layer.choices["labels"].defined() == clustered);
      // Full attention of the same q and k, with the same scale.
      const auto full = make_attention(clustered ? "full:scale=0.8" : "full");
      CHECK(difference(layer.full, attention_weights(*full, layer.q, layer.k, {}, {})) <= tolerance::float32);
      CHECK((difference(layer.full, layer.weights) > 0.01) == clustered);
    }
    // Whoever asked for the choices still gets them.
    CHECK(reported["labels"].defined() == seen[1].choices["labels"].defined());
    if (reported["labels"].defined()) CHECK(same_bits(reported["labels"], seen[1].choices["labels"]));
  }
}

TEST_CASE("observers leave an encoder whose pass fails", "[attention]") {
  Generator generator(7);
  Encoder encoder(two_layers("clustered-3"), generator);
  const Variable x(random_tensor({1, 5, 8}, DType::float32));
  AttentionMask causal;
  causal.causal = true;
  CHECK_THROWS_AS(observe(encoder.attentions(), [&] { encoder(x, causal, {false, &generator}); }), UsageError);
  for (const auto& layer : encoder.layers) CHECK(layer->attention.attention->spec() == "clustered-3");
}
