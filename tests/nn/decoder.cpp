#include <utility>
#include <vector>

#include "nn/transformer.h"
#include "tests/nn/module_test.h"

using Catch::Matchers::ContainsSubstring;

namespace {

DecoderOptions small() {
  DecoderOptions options;
  options.heads = 2;
  options.head_size = 3;
  options.feed_forward = 5;
  return options;
}

Variable random_variable(const Shape& shape, uint64_t seed) {
  return Variable(random_tensor(shape, DType::float32, seed));
}

}  // namespace

TEST_CASE("a decoder layer is its blocks with residual sums and norms in the documented order", "[nn][decoder]") {
  const Variable x = random_variable({2, 4, 6}, 1), memory = random_variable({2, 5, 6}, 2);
  const Tensor targets = int32s({4, 2});
  const AttentionMask causal{.query_lengths = targets, .key_lengths = targets, .causal = true};
  const AttentionMask cross{.query_lengths = targets, .key_lengths = int32s({3, 5})};
  for (Norm norm : {Norm::post, Norm::pre}) {
    Generator generator(1);
    auto options = small();
    options.norm = norm;
    const DecoderLayer layer(options, generator);
    const Context context;
    Variable y;
    if (norm == Norm::post) {
      y = layer.norm1(x + layer.self_attention(x, causal, context));
      y = layer.norm2(y + layer.cross_attention(y, memory, cross, context));
      y = layer.norm3(y + layer.feed_forward(y, context));
    } else {
      y = x + layer.self_attention(layer.norm1(x), causal, context);
      y = y + layer.cross_attention(layer.norm2(y), memory, cross, context);
      y = y + layer.feed_forward(layer.norm3(y), context);
    }
    const Variable out = layer(x, memory, cross, context);
    CHECK(out.shape() == x.shape());
    CHECK(difference(out.value(), y.value()) == 0);
  }
}

TEST_CASE("gradients of a whole decoder layer", "[nn][decoder][grad]") {
  for (const auto& [norm, cross] :
       {std::pair{Norm::post, "full"}, {Norm::pre, "i-clustered-2:topk=2"}, {Norm::post, "euclidean-2"}}) {
    Generator generator(2);
    auto options = small();
    options.norm = norm;
    options.cross_attention = cross;
    options.dropout = options.attention_dropout = 0.2;
    DecoderLayer layer(options, generator);
    convert_to(layer, DType::float64);
    const Tensor x = random_tensor({1, 4, 6}), memory = random_tensor({1, 5, 6}, DType::float64, 2);
    const Context context{.training = true, .generator = &generator};
    Observation made;  // later passes make the same choices
    layer.cross_attention.observation = &made;
    layer(Variable(x), Variable(memory), {}, context);
    const auto checked = check_module_gradient(
        layer, {x, memory}, [&](const std::vector<Variable>& in) { return layer(in[0], in[1], {}, context); });
    INFO(cross << (norm == Norm::post ? " post: " : " pre: ") << checked.where);
    CHECK(checked.error <= tolerance::gradient);
  }
}

TEST_CASE("a decoder layer refuses attention that cannot do what it asks", "[nn][decoder]") {
  Generator generator(1);
  const Variable x = random_variable({1, 4, 6}, 1), memory = random_variable({1, 4, 6}, 2);
  auto options = small();
  options.attention = "clustered-2";
  const DecoderLayer clustered(options, generator);
  CHECK_THROWS_WITH(clustered(x, memory, {}, {.generator = &generator}),
                    ContainsSubstring("attention 'clustered-2' cannot honor a causal mask"));
  options = small();
  options.cross_attention = "shared-full";
  CHECK_THROWS_WITH(DecoderLayer(options, generator),
                    ContainsSubstring("attention 'shared-full' uses the queries as keys"));
  const Encoder shared({.layers = 1, .heads = 2, .head_size = 3, .attention = "shared-full"}, generator);
  CHECK_THROWS_WITH(shared(x, {}, {}, memory), ContainsSubstring("attention 'shared-full' uses the queries as keys"));
}
