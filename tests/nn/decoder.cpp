#include <algorithm>
#include <cstdint>
#include <string>
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
  const AttentionMask causal{targets, targets, {}, true}, cross{targets, int32s({3, 5}), {}, false};
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
    const Context context{true, &generator};
    AttentionChoices made;
    layer.cross_attention.report = &made;
    layer(Variable(x), Variable(memory), {}, context);
    layer.cross_attention.report = nullptr;
    layer.cross_attention.replay = &made;
    const auto checked = check_module_gradient(
        layer, {x, memory}, [&](const std::vector<Variable>& in) { return layer(in[0], in[1], {}, context); });
    INFO(cross << (norm == Norm::post ? " post: " : " pre: ") << checked.where);
    CHECK(checked.error <= tolerance::gradient);
  }
}

TEST_CASE("a decoder layer's outputs know nothing of later tokens, and all of the memory", "[nn][decoder]") {
  for (Norm norm : {Norm::post, Norm::pre}) {
    Generator generator(3);
    auto options = small();
    options.norm = norm;
    const DecoderLayer layer(options, generator);
    const Tensor x = random_tensor({1, 7, 6}, DType::float32, 1), memory = random_tensor({1, 5, 6}, DType::float32, 2);
    const auto run = [&](const Tensor& target, const Tensor& source) {
      return layer(Variable(target), Variable(source), {}, {}).value().to_vector<float>();
    };
    const auto before = run(x, memory);
    for (const int64_t changed : {0, 3, 6}) {
      Tensor other = x.cast(DType::float64).cast(DType::float32);
      other.mutable_data<float>()[changed * 6 + 1] += 1;
      const auto after = run(other, memory);
      for (int64_t i = 0; i < 7; ++i) {
        const auto from = i * 6, to = from + 6;
        INFO("token " << changed << " changed, output " << i);
        CHECK(std::equal(before.begin() + from, before.begin() + to, after.begin() + from) == (i < changed));
      }
    }
    Tensor other = memory.cast(DType::float64).cast(DType::float32);
    other.mutable_data<float>()[4 * 6] += 1;
    const auto after = run(x, other);
    for (size_t i = 0; i < 7; ++i)
      CHECK(!std::equal(before.begin() + i * 6, before.begin() + i * 6 + 6, after.begin() + i * 6));
  }
}

TEST_CASE("padding of target and memory changes nothing that is valid", "[nn][decoder]") {
  for (const char* cross : {"full", "clustered-3", "i-position-3:topk=2"}) {
    INFO(cross);
    Generator generator(3);
    auto options = small();
    options.cross_attention = cross;
    const DecoderLayer layer(options, generator);
    const Tensor memory = random_tensor({1, 9, 6}, DType::float32, 1), x = random_tensor({1, 8, 6}, DType::float32, 2);
    const auto first = [](const Tensor& t, int64_t n) {
      return t.reshape({t.size(1), 6}).slice(0, n).reshape({1, n, 6});
    };
    const Context context{false, &generator};
    for (const int64_t memories : {4, 6}) {  // fewer and more than the target's
      const AttentionMask mask{int32s({5}), int32s({int32_t(memories)}), {}, false};
      const Tensor padded = layer(Variable(x), Variable(memory), mask, context).value();
      const Tensor plain = layer(Variable(first(x, 5)), Variable(first(memory, memories)), {}, context).value();
      CHECK(difference(first(padded, 5), plain) <= tolerance::float32);
    }
  }
}

TEST_CASE("a decoder layer's two attentions draw under two numbers", "[nn][decoder]") {
  struct Recorder : Attention {
    uint32_t* number = nullptr;
    Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                        const AttentionContext& context) const override {
      *number = context.layer;
      return attention(q, k, v, options(mask, context));
    }
    double flops(const AttentionWork&) const override { return 0; }
  };
  Generator generator(3);
  DecoderLayer layer(small(), generator);
  uint32_t self = 0, cross = 0;
  const auto record = [](MultiHeadAttention& attention, uint32_t& number) {
    auto recorder = std::make_unique<Recorder>();
    recorder->number = &number;
    attention.attention = std::move(recorder);
  };
  record(layer.self_attention, self);
  record(layer.cross_attention, cross);
  layer(random_variable({1, 4, 6}, 1), random_variable({1, 5, 6}, 2), {}, {false, nullptr, 10});
  CHECK(self == 10);
  CHECK(cross == 11);
}

TEST_CASE("a decoder layer refuses attention that cannot do what it asks", "[nn][decoder]") {
  Generator generator(1);
  const Variable x = random_variable({1, 4, 6}, 1), memory = random_variable({1, 4, 6}, 2);
  auto options = small();
  options.attention = "clustered-2";
  const DecoderLayer clustered(options, generator);
  CHECK_THROWS_AS(clustered(x, memory, {}, {false, &generator}), UsageError);
  CHECK_THROWS_WITH(clustered(x, memory, {}, {false, &generator}),
                    ContainsSubstring("attention 'clustered-2' cannot honor a causal mask"));
  options = small();
  options.cross_attention = "shared-full";
  CHECK_THROWS_AS(DecoderLayer(options, generator), UsageError);
  CHECK_THROWS_WITH(DecoderLayer(options, generator),
                    ContainsSubstring("attention 'shared-full' has the queries for keys"));
}

TEST_CASE("a decoder layer's parameters have their names", "[nn][decoder]") {
  Generator generator(1);
  DecoderLayer layer(small(), generator);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : named_parameters(layer))
    if (name.ends_with(".weight")) names.push_back(name.substr(0, name.size() - 7));
  CHECK(names == std::vector<std::string>{"self_attention.query", "self_attention.key", "self_attention.value",
                                          "self_attention.out", "cross_attention.query", "cross_attention.key",
                                          "cross_attention.value", "cross_attention.out", "feed_forward.linear1",
                                          "feed_forward.linear2", "norm1", "norm2", "norm3"});
}
