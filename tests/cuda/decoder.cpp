// A decoder layer on CUDA has the outputs and gradients of the CPU.
#include <cstdint>
#include <vector>

#include "nn/transformer.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;

TEST_CASE("a decoder layer gives on CUDA what it gives on the CPU", "[gpu][variants]") {
  for (const char* cross : {"i-clustered-3:topk=4", "i-euclidean-3:topk=4", "position-3:shift=true"}) {
    INFO(cross);
    DecoderOptions options;
    options.heads = 2;
    options.head_size = 8;
    options.feed_forward = 24;
    options.dropout = options.attention_dropout = 0.1;
    options.cross_attention = cross;
    Observation seen;
    std::vector<std::vector<float>> results[2];
    for (const Device device : {Device::cpu, Device::cuda}) {
      Generator generator(4);
      DecoderLayer layer(options, generator);
      move_to(layer, device);
      seen.choices = seen.choices.to(device);  // CUDA replays the CPU's
      layer.cross_attention.observation = &seen;
      RandomStream random(3, 0, Purpose::test);
      const auto input = [&](int64_t n) { return Variable(random_normal({2, n, 16}, random).to(device), true); };
      const auto lengths = [&](int32_t a, int32_t b) {
        return Tensor::from(std::vector<int32_t>{a, b}, {2}).to(device);
      };
      const Variable memory = input(11), target = input(9);
      const AttentionMask mask{.query_lengths = lengths(6, 9), .key_lengths = lengths(11, 4)};
      const Variable out = layer(target, memory, mask, {.training = true, .generator = &generator});
      backward(out, random_normal(out.shape(), random).to(device));
      auto& all = results[device == Device::cuda];
      for (const Tensor& x : {out.value(), memory.grad(), target.grad()}) all.push_back(x.to_vector<float>());
      for (const Variable& x : parameters(layer)) all.push_back(x.grad().to_vector<float>());
    }
    REQUIRE(results[0].size() == results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i) {
      INFO("result " << i);
      CHECK(difference(results[1][i], results[0][i]) <= tolerance::float32);
    }
  }
}
