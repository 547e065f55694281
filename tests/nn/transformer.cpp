#include "nn/transformer.h"

#include <cmath>

#include "tests/nn/module_test.h"
#include "tests/ops/operation.h"

namespace {

TransformerOptions tiny() {
  TransformerOptions options;
  options.layers = 1, options.heads = 2, options.head_size = 3, options.feed_forward = 5;
  options.attention = "full";
  return options;
}

}  // namespace

TEST_CASE("an encoder layer is its blocks with residual sums and norms in the documented order", "[nn]") {
  const Variable x(random_tensor({2, 5, 6}, DType::float32));
  for (Norm norm : {Norm::post, Norm::pre})
    for (bool training : {false, true}) {
      Generator generator(1);
      TransformerOptions options = tiny();
      options.norm = norm, options.dropout = 0.3;
      const EncoderLayer layer(options, generator);
      const Context context{.training = training, .generator = &generator, .layer = 2};
      const auto attention_part = [&](const Variable& y) {
        const Variable block = layer.attention(y, {}, context);
        return apply_dropout(block, 0.3, context, Purpose::attention_output_dropout);
      };
      const auto feed_forward_part = [&](const Variable& y) {
        const Variable block = layer.feed_forward(y, context);
        return apply_dropout(block, 0.3, context, Purpose::feed_forward_output_dropout);
      };
      Variable expected;
      if (norm == Norm::post) {
        const Variable y = layer.norm1(x + attention_part(x));
        expected = layer.norm2(y + feed_forward_part(y));
      } else {
        const Variable y = x + attention_part(layer.norm1(x));
        expected = y + feed_forward_part(layer.norm2(y));
      }
      CHECK(difference(layer(x, {}, context).value(), expected.value()) == 0);
    }
}

TEST_CASE("training needs little more than training_bytes()", "[nn]") {
  TransformerOptions options = tiny();
  options.layers = 3, options.heads = 4, options.head_size = 16, options.feed_forward = 200;
  Generator generator(1);
  Encoder encoder(options, generator);
  const double share = training_bytes(options) / double(4 * sizeof(float) * size_t(parameter_count(encoder)));
  CHECK((share > 0.95 && share <= 1));
}

// Straight from the formulas, in double, over single elements.
TEST_CASE("multi-head attention projects, attends by head and projects back", "[nn]") {
  Generator generator(4);
  MultiHeadAttention layer(6, 2, 3, 0, make_attention("full"), generator);
  convert_to(layer, DType::float64);
  const Tensor x = random_tensor({2, 4, 6}), memory = random_tensor({2, 5, 6}, DType::float64, 2);
  const auto project = [](const Linear& linear, const std::vector<double>& in) {
    const auto w = linear.weight.value().to_vector<double>(), b = linear.bias.value().to_vector<double>();
    std::vector<double> out;
    for (size_t row = 0; row < in.size(); row += 6)
      for (size_t o = 0; o < 6; ++o) {
        double sum = b[o];
        for (size_t i = 0; i < 6; ++i) sum += w[o * 6 + i] * in[row + i];
        out.push_back(sum);
      }
    return out;
  };
  const auto heads = [&](const Linear& linear, const Tensor& in) {
    return from_doubles(project(linear, as_double(in)), {2, in.size(1), 2, 3});
  };
  const BatchHeads weights = reference_weights(reference_scores(heads(layer.query, x), heads(*layer.key, memory), {}));
  const auto expected = project(layer.out, times_values(weights, heads(layer.value, memory)));
  CHECK(difference(layer(Variable(x), Variable(memory), {}, {}).value(), expected) <= tolerance::float64);
}

TEST_CASE("gradients of a whole encoder layer", "[nn][grad]") {
  for (Norm norm : {Norm::post, Norm::pre})
    for (const char* attention : {"full", "i-clustered-2:topk=2"}) {
      Generator generator(2);
      TransformerOptions options = tiny();
      options.norm = norm, options.attention = attention;
      options.dropout = options.attention_dropout = 0.2;
      EncoderLayer layer(options, generator);
      convert_to(layer, DType::float64);
      const Tensor x = random_tensor({1, 5, 6});
      const Context context{.training = true, .generator = &generator};
      Observation made;  // later passes make the same choices
      layer.attention.observation = &made;
      layer(Variable(x), {}, context);

      const auto checked =
          check_module_gradient(layer, {x}, [&](const std::vector<Variable>& in) { return layer(in[0], {}, context); });
      INFO(attention << (norm == Norm::post ? " post: " : " pre: ") << checked.where);
      CHECK(checked.error <= tolerance::gradient);
    }
}

TEST_CASE("a transformer of impossible sizes is refused", "[nn]") {
  Generator generator(1);
  const auto refused = [&](auto&& change) {
    TransformerOptions options = tiny();
    change(options);
    CHECK_THROWS_AS(Encoder(options, generator), UsageError);
  };
  refused([](auto& o) { o.layers = 0; });
  refused([](auto& o) { o.heads = 0; });
  refused([](auto& o) { o.head_size = -1; });
  refused([](auto& o) { o.feed_forward = 0; });
  refused([](auto& o) { o.dropout = 1.5; });
  refused([](auto& o) { o.attention_dropout = NAN; });
  refused([](auto& o) { o.attention = "nothing"; });
}
