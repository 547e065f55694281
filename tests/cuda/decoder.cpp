// An encoder and decoder on CUDA: outputs and gradients are the CPU's.
#include "nn/decoder.h"

#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;

TEST_CASE("an encoder and decoder give on CUDA what they give on the CPU", "[gpu][variants]") {
  for (const char* cross : {"i-clustered-3:topk=4", "i-euclidean-3:topk=4", "position-3:shift=true"}) {
    INFO(cross);
    TransformerOptions encoder;
    encoder.layers = 1, encoder.heads = 2, encoder.head_size = 8, encoder.feed_forward = 24;
    encoder.dropout = encoder.attention_dropout = 0.1;
    encoder.attention = "full";
    DecoderOptions decoder;
    static_cast<TransformerOptions&>(decoder) = encoder;
    decoder.cross_attention = cross;
    AttentionChoices made, given;
    std::vector<std::vector<float>> results[2];
    for (const Device device : {Device::cpu, Device::cuda}) {
      Generator generator(4, device);
      EncoderDecoder model(encoder, decoder, generator);
      move_to(model, device);
      MultiHeadAttention& attention = model.decoder.layers[0]->cross_attention;
      if (device == Device::cpu) {
        attention.report = &made;
      } else {
        given = made.to(device);
        attention.replay = &given;
      }
      RandomStream random(3, 0, Purpose::test);
      const auto input = [&](int64_t n) { return Variable(random_normal({2, n, 16}, random).to(device), true); };
      const auto lengths = [&](int32_t a, int32_t b) {
        return Tensor::from(std::vector<int32_t>{a, b}, {2}).to(device);
      };
      const Variable source = input(11), target = input(9);
      const Variable out = model(source, target, lengths(11, 4), lengths(6, 9), {true, &generator});
      backward(out, random_normal(out.shape(), random).to(device));
      auto& all = results[device == Device::cuda];
      for (const Tensor& x : {out.value(), source.grad(), target.grad()}) all.push_back(x.to_vector<float>());
      for (const Variable& x : parameters(model)) all.push_back(x.grad().to_vector<float>());
    }
    REQUIRE(results[0].size() == results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i) {
      INFO("result " << i);
      CHECK(difference(results[1][i], results[0][i]) <= tolerance::float32);
    }
  }
}
