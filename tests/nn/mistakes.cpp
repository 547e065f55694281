// Typical mistakes of somebody who writes a model, and the library's messages.
#include <filesystem>
#include <type_traits>

#include "nn/io/checkpoint.h"
#include "nn/transformer.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

TEST_CASE("a layer says what shape it expected", "[nn]") {
  Generator generator(1);
  TransformerOptions options;
  options.layers = 1, options.heads = 2, options.head_size = 3, options.feed_forward = 5, options.attention = "full";
  const Encoder encoder(options, generator);
  const auto x = [](const Shape& shape) { return Variable(Tensor::zeros(shape)); };
  CHECK_ERROR(encoder(x({6, 6}), {}, {}), "encoder: expected [batch, position, 6 features], got [6, 6]");
  CHECK_ERROR(encoder(x({1, 4, 5}), {}, {}), "encoder: expected [batch, position, 6 features], got [1, 4, 5]");
  const MultiHeadAttention& attention = encoder.layers[0]->attention;
  CHECK_ERROR(attention(x({4, 6}), {}, {}), "attention: expected [batch, position, 6 features], got [4, 6]");
  CHECK_ERROR(attention(x({1, 4, 6}), x({1, 4, 2}), {}, {}),
              "attention: memory: expected [batch, position, 6 features]");
  CHECK_ERROR(encoder.layers[0]->feed_forward(x({4, 5}), {}), "feed_forward: expected [..., 6 features], got [4, 5]");
  CHECK_ERROR(encoder.layers[0]->norm1(x({4, 5})), "layer_norm: expected [..., 6 features], got [4, 5]");
  CHECK_ERROR(Linear(6, 2, generator)(x({})), "linear: expected [..., 6 features], got []");
  const DecoderLayer decoder({}, generator);
  CHECK_ERROR(decoder(x({2, 3, 4}), x({2, 3, 4}), {}, {}), "decoder_layer: expected [batch, position, 192 features]");
}

TEST_CASE("two parameters of one name are an error, and a module cannot be copied", "[nn]") {
  struct Twice : Module {
    Linear a, b;
    explicit Twice(Generator& generator) : a(2, 2, generator), b(2, 2, generator) {}
    void fields(Fields& f) override {
      f("a", a);
      f("a", b);
    }
  };
  Generator generator(1);
  Twice twice(generator);
  CHECK_ERROR(parameters(twice), "module: two parameters are called a.weight; see fields()");
  CHECK_FALSE(std::is_copy_constructible_v<Linear>);
  CHECK_FALSE(std::is_copy_assignable_v<Linear>);
}

TEST_CASE("the weights of a module are saved and read back, all or none", "[nn]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "linear.safetensors";
  Generator generator(1);
  Linear first(3, 2, generator), second(3, 2, generator);
  save(path, first);
  load(path, second);
  CHECK(second.weight.value().to_vector<float>() == first.weight.value().to_vector<float>());
  CHECK(second.bias.value().to_vector<float>() == first.bias.value().to_vector<float>());

  Linear other(3, 5, generator);
  const auto before = other.bias.value().to_vector<float>();
  CHECK_ERROR(load(path, other), concat(path.string(), ": tensor \"weight\": expected float32 of shape [5, 3], got"));
  CHECK(other.bias.value().to_vector<float>() == before);
  LayerNorm norm(2);
  CHECK_ERROR(load(path, norm), concat(path.string(), ": tensor \"weight\": expected float32 of shape [2]"));
  Embedding embedding(3, 2, generator);
  CHECK_ERROR(load(path, embedding), concat(path.string(), ": tensor"));
}
