#include "nn/attention/offset_heads.h"

#include <cstdint>
#include <vector>

#include "nn/attention/observe.h"
#include "tests/ops/ops_test.h"

namespace {

constexpr int64_t features = 144, heads = 4, head_size = 36, positions = 40;

// The mean over positions i of each head's weight on position i + offset.
double mean_weight(const Tensor& weights, int64_t head, int64_t offset) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 6; i < positions - 6; ++i, ++count) sum += weights.at<float>({0, head, i, i + offset});
  return sum / double(count);
}

}  // namespace

TEST_CASE("a head that starts at an offset has its largest weight there", "[attention]") {
  const std::vector<int> offsets = {-2, -1, 1, 2};
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    Generator generator(seed);
    MultiHeadAttention layer(features, heads, head_size, 0, make_attention("full"), generator);
    const Tensor out = layer.out.weight.value(), bias = layer.key->bias.value();
    start_at_offsets(layer, offsets);
    CHECK(same_bits(layer.out.weight.value(), out));  // only the weights of queries and keys change
    CHECK(same_bits(layer.key->bias.value(), bias));
    const Variable x(sinusoidal_positions(positions, features).reshape({1, positions, features}));
    const Tensor weights = observe({&layer}, [&] { layer(x, {}, {}); })[0].weights;
    for (int64_t head = 0; head < heads; ++head) {
      CAPTURE(seed, head);
      for (int64_t other = -6; other <= 6; ++other)
        if (other != offsets[size_t(head)])
          CHECK(mean_weight(weights, head, other) < mean_weight(weights, head, offsets[size_t(head)]));
      CHECK(mean_weight(weights, head, offsets[size_t(head)]) > 0.15);  // of 1 / 40 without
    }
  }
}

TEST_CASE("heads whose queries are the keys start at their own position, and see both sides alike", "[attention]") {
  Generator generator(1);
  MultiHeadAttention layer(features, heads, head_size, 0, make_attention("shared-full"), generator);
  start_at_offsets(layer, std::vector<int>(heads, 0));
  const Variable x(sinusoidal_positions(positions, features).reshape({1, positions, features}));
  const Tensor weights = observe({&layer}, [&] { layer(x, {}, {}); })[0].weights;
  for (int64_t head = 0; head < heads; ++head) {
    CAPTURE(head);
    for (int64_t other = 1; other <= 6; ++other)
      CHECK(mean_weight(weights, head, other) < mean_weight(weights, head, 0));
    CHECK(mean_weight(weights, head, 1) ==
          Approx(mean_weight(weights, head, -1)).epsilon(0.1));  // not normalized alike
    CHECK(mean_weight(weights, head, 1) > 2 * mean_weight(weights, head, 6));
  }
}

TEST_CASE("offset heads refuse what they cannot do", "[attention]") {
  Generator generator(1);
  MultiHeadAttention layer(6, 2, 4, 0, make_attention("full"), generator);
  MultiHeadAttention shared(6, 2, 4, 0, make_attention("shared-full"), generator);
  MultiHeadAttention odd(5, 2, 4, 0, make_attention("full"), generator);
  CHECK_ERROR(start_at_offsets(layer, {1}), "offset heads: expected 2 offsets, one for each head, got 1");
  CHECK_ERROR(start_at_offsets(shared, {0, 2}), "offset heads: attention 'shared-full' uses the queries as keys");
  CHECK_ERROR(start_at_offsets(odd, {1, 2}), "offset heads: expected an even number of features, got 5");
}
