#include "nn/decoder.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "nn/io/checkpoint.h"
#include "nn/optim/r_adam.h"
#include "tests/io/io_test.h"
#include "tests/nn/module_test.h"

using Catch::Matchers::ContainsSubstring;

namespace {

template <class Options>
Options small(int64_t layers = 1) {
  Options options;
  options.layers = layers, options.heads = 2, options.head_size = 3, options.feed_forward = 5;
  options.attention = "full";
  return options;
}

Variable random_variable(const Shape& shape, uint64_t seed, DType dtype = DType::float32) {
  return Variable(random_tensor(shape, dtype, seed));
}

std::vector<std::vector<float>> weights(Module& module) {
  std::vector<std::vector<float>> result;
  for (const Variable& x : parameters(module)) result.push_back(x.value().to_vector<float>());
  return result;
}

}  // namespace

TEST_CASE("a decoder layer is its blocks with residual sums and norms in the documented order", "[nn][decoder]") {
  const Variable x = random_variable({2, 4, 6}, 1), memory = random_variable({2, 5, 6}, 2);
  const DecoderLengths lengths{int32s({4, 2}), int32s({3, 5})};
  const AttentionMask causal{lengths.target, lengths.target, {}, true},
      cross{lengths.target, lengths.memory, {}, false};
  for (Norm norm : {Norm::post, Norm::pre}) {
    Generator generator(1);
    auto options = small<DecoderOptions>();
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
    const Variable out = layer(x, memory, lengths, context);
    CHECK(out.shape() == x.shape());
    CHECK(difference(out.value(), y.value()) == 0);
  }
}

TEST_CASE("gradients of a whole decoder layer", "[nn][decoder][grad]") {
  for (const auto& [norm, cross] :
       {std::pair{Norm::post, "full"}, {Norm::pre, "i-clustered-2:topk=2"}, {Norm::post, "euclidean-2"}}) {
    Generator generator(2);
    auto options = small<DecoderOptions>();
    options.norm = norm, options.cross_attention = cross;
    options.dropout = options.attention_dropout = 0.2;
    DecoderLayer layer(options, generator);
    convert_to(layer, DType::float64);
    const Tensor x = random_tensor({1, 4, 6}), memory = random_tensor({1, 5, 6}, DType::float64, 2);
    const Context context{true, &generator};
    AttentionChoices made;
    layer.cross_attention.report = &made;
    layer(Variable(x), Variable(memory), {}, context);
    layer.cross_attention.report = nullptr, layer.cross_attention.replay = &made;
    const auto checked = check_module_gradient(
        layer, {x, memory}, [&](const std::vector<Variable>& in) { return layer(in[0], in[1], {}, context); });
    INFO(cross << (norm == Norm::post ? " post: " : " pre: ") << checked.where);
    CHECK(checked.error <= tolerance::gradient);
  }
}

TEST_CASE("a decoder's outputs know nothing of later tokens, and all of the memory", "[nn][decoder]") {
  for (Norm norm : {Norm::post, Norm::pre}) {
    Generator generator(3);
    auto options = small<DecoderOptions>(2);
    options.norm = norm, options.final_norm = true;
    const Decoder decoder(options, generator);
    const Tensor x = random_tensor({1, 7, 6}, DType::float32, 1), memory = random_tensor({1, 5, 6}, DType::float32, 2);
    const auto run = [&](const Tensor& target, const Tensor& source) {
      return decoder(Variable(target), Variable(source), {}, {}).value().to_vector<float>();
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

TEST_CASE("padding of targets and sources changes nothing that is valid", "[nn][decoder]") {
  for (const char* cross : {"full", "clustered-3", "i-position-3:topk=2"}) {
    INFO(cross);
    Generator generator(3);
    auto options = small<DecoderOptions>(2);
    options.cross_attention = cross;
    const EncoderDecoder model(small<TransformerOptions>(2), options, generator);
    const Tensor source = random_tensor({1, 9, 6}, DType::float32, 1),
                 target = random_tensor({1, 8, 6}, DType::float32, 2);
    const auto first = [](const Tensor& x, int64_t n) {
      return x.reshape({x.size(1), 6}).slice(0, n).reshape({1, n, 6});
    };
    const Context context{false, &generator};
    const Tensor padded = model(Variable(source), Variable(target), int32s({6}), int32s({5}), context).value();
    const Tensor plain = model(Variable(first(source, 6)), Variable(first(target, 5)), {}, {}, context).value();
    CHECK(difference(first(padded, 5), plain) <= tolerance::float32);
  }
}

TEST_CASE("cross attention with groups of queries equals full at exhaustive settings", "[nn][decoder]") {
  Generator generator(3);
  EncoderDecoder model(small<TransformerOptions>(), small<DecoderOptions>(2), generator);
  const Variable source = random_variable({2, 9, 6}, 1), target = random_variable({2, 7, 6}, 2);
  const Tensor sources = int32s({9, 4}), targets = int32s({5, 7});
  const auto run = [&] { return model(source, target, sources, targets, {false, &generator}).value(); };
  const Tensor full = run();
  for (const char* exhaustive : {"clustered-7", "i-clustered-2:topk=9", "position-7", "i-euclidean-2:topk=9"}) {
    INFO(exhaustive);
    model.decoder.swap_cross_attention(exhaustive);
    CHECK(difference(run(), full) <= tolerance::float32);
  }
  model.decoder.swap_cross_attention("clustered-2");
  CHECK(difference(run(), full) > 1e-3);
}

TEST_CASE("no two attentions of encoder and decoder draw under one number", "[nn][decoder]") {
  struct Recorder : Attention {
    std::vector<uint32_t>* numbers = nullptr;
    Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                        const AttentionContext& context) const override {
      numbers->push_back(context.layer);
      return attention(q, k, v, options(mask, context));
    }
    double flops(const AttentionWork&) const override { return 0; }
  };
  Generator generator(3);
  EncoderDecoder model(small<TransformerOptions>(3), small<DecoderOptions>(2), generator);
  std::vector<uint32_t> encoder, self, cross;
  const auto record = [](MultiHeadAttention& layer, std::vector<uint32_t>& numbers) {
    auto recorder = std::make_unique<Recorder>();
    recorder->numbers = &numbers;
    layer.attention = std::move(recorder);
  };
  for (auto& layer : model.encoder.layers) record(layer->attention, encoder);
  for (auto& layer : model.decoder.layers) record(layer->self_attention, self), record(layer->cross_attention, cross);
  model(random_variable({1, 4, 6}, 1), random_variable({1, 5, 6}, 2), {}, {}, {false, nullptr, 10});
  CHECK(encoder == std::vector<uint32_t>{10, 11, 12});
  CHECK(self == std::vector<uint32_t>{13, 14});
  CHECK(cross == std::vector<uint32_t>{15, 16});
}

TEST_CASE("a decoder refuses attention that cannot do what it asks", "[nn][decoder]") {
  Generator generator(1);
  const Variable x = random_variable({1, 4, 6}, 1), memory = random_variable({1, 4, 6}, 2);
  auto options = small<DecoderOptions>();
  options.attention = "clustered-2";
  const Decoder clustered(options, generator);
  CHECK_THROWS_AS(clustered(x, memory, {}, {false, &generator}), UsageError);
  CHECK_THROWS_WITH(clustered(x, memory, {}, {false, &generator}),
                    ContainsSubstring("attention 'clustered-2' cannot honor a causal mask"));
  options = small<DecoderOptions>();
  options.cross_attention = "shared-full";
  CHECK_THROWS_AS(Decoder(options, generator), UsageError);
  CHECK_THROWS_WITH(Decoder(options, generator), ContainsSubstring("attention 'shared-full' has the queries for keys"));
  Decoder decoder(small<DecoderOptions>(), generator);
  CHECK_THROWS_WITH(decoder.swap_cross_attention("shared-full"), ContainsSubstring("no cross attention"));
  options = small<DecoderOptions>();
  options.layers = 0;
  CHECK_THROWS_WITH(Decoder(options, generator), ContainsSubstring("layers = 0, expected at least 1"));
  options = small<DecoderOptions>();
  options.heads = 4;
  CHECK_THROWS_WITH(EncoderDecoder(small<TransformerOptions>(), options, generator),
                    ContainsSubstring("6 features of the encoder, 12 of the decoder"));
}

TEST_CASE("a decoder's parameters have their names, and survive a checkpoint", "[nn][decoder]") {
  Generator generator(1), other_generator(2);
  EncoderDecoder model(small<TransformerOptions>(), small<DecoderOptions>(), generator),
      other(small<TransformerOptions>(), small<DecoderOptions>(), other_generator);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : named_parameters(model))
    if (name.rfind("decoder.", 0) == 0 && name.size() > 7 && name.substr(name.size() - 7) == ".weight")
      names.push_back(name.substr(8, name.size() - 15));
  const std::string attention = "layers.0.self_attention.", cross = "layers.0.cross_attention.";
  CHECK(names == std::vector<std::string>{
                     attention + "query", attention + "key", attention + "value", attention + "out", cross + "query",
                     cross + "key", cross + "value", cross + "out", "layers.0.feed_forward.linear1",
                     "layers.0.feed_forward.linear2", "layers.0.norm1", "layers.0.norm2", "layers.0.norm3"});
  const TemporaryFolder folder;
  save_checkpoint(folder.path(), model, RAdam(parameters(model), 0.1), nlohmann::ordered_json::object());
  CHECK(weights(other) != weights(model));
  const auto found = find_checkpoint(folder.path());
  REQUIRE(found);
  restore(*found, other, nullptr);
  CHECK(weights(other) == weights(model));
}

// Digits and their reverse, with the true digits before each position given (teacher forcing). What a position has to
// tell stands at another place of the source, whence only cross attention brings it.
TEST_CASE("an encoder and decoder with i-clustered cross attention learn to reverse digits", "[nn][decoder]") {
  constexpr int64_t batch = 32, n = 8, begin = 10, symbols = 11;
  auto encoder = small<TransformerOptions>();
  encoder.head_size = 16, encoder.feed_forward = 64;
  auto decoder = small<DecoderOptions>();
  decoder.head_size = 16, decoder.feed_forward = 64;
  decoder.cross_attention = "i-clustered-4:topk=4";

  struct Model : Module {
    Embedding source, target;
    EncoderDecoder inner;
    Linear output;
    Tensor positions;

    Model(const TransformerOptions& e, const DecoderOptions& d, Generator& generator)
        : source(symbols, e.features(), generator),
          target(symbols, e.features(), generator),
          inner(e, d, generator),
          output(e.features(), symbols, generator),
          positions(sinusoidal_positions(n, e.features())) {}
    void fields(Fields& f) override {
      f("source", source);
      f("target", target);
      f("inner", inner);
      f("output", output);
    }
    Variable operator()(const Tensor& digits, const Tensor& before, const Context& context) const {
      const Variable places(positions);
      return output(inner(source(digits) + places, target(before) + places, {}, {}, context));
    }
  };
  struct Batch {
    Tensor digits, before, reversed;
  };
  RandomStream random(9, 0, Purpose::data);
  const auto fresh = [&] {
    std::vector<int32_t> digits, before, reversed;
    for (int64_t b = 0; b < batch; ++b) {
      std::vector<int32_t> word;
      for (int64_t i = 0; i < n; ++i) word.push_back(int32_t(random.below(10)));
      digits.insert(digits.end(), word.begin(), word.end());
      reversed.insert(reversed.end(), word.rbegin(), word.rend());
      before.push_back(begin);
      before.insert(before.end(), word.rbegin(), word.rend() - 1);
    }
    const Shape shape{batch, n};
    return Batch{Tensor::from(digits, shape), Tensor::from(before, shape), Tensor::from(reversed, shape)};
  };

  Generator generator(1);
  Model model(encoder, decoder, generator);
  RAdam optimizer(parameters(model), 3e-3);
  for (uint64_t step = 0; step < 450; ++step) {
    generator.set_step(step);
    const Batch data = fresh();
    optimizer.clear_gradients();
    const Variable loss = cross_entropy(model(data.digits, data.before, {true, &generator}), data.reversed);
    backward(loss);
    optimizer.step();
  }
  const NoGrad no_grad;
  int right = 0, all = 0;
  for (int i = 0; i < 8; ++i) {
    const Batch data = fresh();
    const auto answer = argmax(model(data.digits, data.before, {false, &generator}).value()).to_vector<int32_t>(),
               truth = data.reversed.to_vector<int32_t>();
    for (size_t j = 0; j < truth.size(); ++j) right += answer[j] == truth[j], ++all;
  }
  CHECK(right > 0.98 * all);
}
