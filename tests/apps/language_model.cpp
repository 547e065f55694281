// The language model's bits and what it writes, against a model of known probabilities.
#include "apps/language_model/model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "nn/io/file.h"
#include "tests/catch.h"

using namespace cairn;
using namespace cairn::language_model;

namespace {

Settings tiny() {
  Settings settings;
  settings.context = 6;
  settings.model.layers = 1, settings.model.heads = 2, settings.model.head_size = 4, settings.model.feed_forward = 8;
  return settings;
}

// Gives every byte the same logits, whatever came before.
void set_logits(Model& model, const std::vector<float>& of_byte) {
  model.output.weight.mutable_value() = Tensor::zeros(model.output.weight.shape());
  model.output.bias.mutable_value() = Tensor::from(of_byte, {byte_values});
}

}  // namespace

TEST_CASE("language model: bits are those of all bytes but the first, in windows of the context", "[language_model]") {
  Generator generator(1);
  const Settings settings = tiny();
  Model model(settings, generator);
  std::vector<float> logits(byte_values, -INFINITY);
  logits['a'] = float(std::log(0.25)), logits['b'] = float(std::log(0.75));
  set_logits(model, logits);
  const double a = 2, b = -std::log2(0.75);
  CHECK(bits_per_byte(model, "ab", 1, false) == Approx(b));
  CHECK(bits_per_byte(model, "bbabbbba", 1, false) == Approx((5 * b + 2 * a) / 7));
  std::string text(6 * 40 + 3, 'a');  // 40 windows in three batches, and a shorter one
  text.replace(100, 30, 30, 'b');
  CHECK(bits_per_byte(model, text, 1, false) == Approx((30 * b + 212 * a) / 242));
  // The windows at 0, 60, 120 and 180, of which the third has b alone.
  CHECK(bits_per_byte(model, text, 10, false) == Approx((6 * b + 18 * a) / 24));
}

TEST_CASE("language model: a byte is predicted from those before it in its window alone", "[language_model]") {
  Generator generator(1);
  const Settings settings = tiny();
  const Model model(settings, generator);
  const Generator draws(5);
  const auto logits_of = [&](const std::string& text) {
    return model(Batch(text + '.', {0}, int64_t(text.size()), Device::cpu).input, {.generator = &draws})
        .value()
        .to_vector<float>();
  };
  const auto one = logits_of("abcdef"), other = logits_of("abcxyz");
  CHECK(std::equal(one.begin(), one.begin() + 3 * byte_values, other.begin()));
  CHECK_FALSE(std::equal(one.begin() + 3 * byte_values, one.end(), other.begin() + 3 * byte_values));
  // Bytes before the context change nothing.
  RandomStream random(1, 0, Purpose::data), again(1, 0, Purpose::data);
  CHECK(next_byte(model, "xyabcdef", 1, random) == next_byte(model, "abcdef", 1, again));
}

TEST_CASE("language model: bytes are drawn with the softmax of logits / temperature", "[language_model]") {
  Generator generator(1);
  const Settings settings = tiny();
  Model model(settings, generator);
  std::vector<float> logits(byte_values, -INFINITY);
  logits['a'] = 0, logits[200] = 1;
  set_logits(model, logits);
  for (const double temperature : {0.0, 0.5, 2.0}) {
    RandomStream random(3, 0, Purpose::data);
    const int draws = 1000;
    int likely = 0;
    for (int i = 0; i < draws; ++i) {
      const char byte = next_byte(model, "x", temperature, random);
      REQUIRE((byte == 'a' || byte == char(200)));
      likely += byte == char(200);
    }
    const double expected = temperature == 0 ? 1 : 1 / (1 + std::exp(-1 / temperature));
    CHECK(std::abs(double(likely) / draws - expected) <= 4 * std::sqrt(0.25 / draws));  // four standard deviations
  }
}

TEST_CASE("language model: a variant that cannot be causal is refused, and those that can are named",
          "[language_model]") {
  Generator generator(1);
  Settings settings = tiny();
  settings.model.attention = "clustered-15";
  CHECK_THROWS_WITH(Model(settings, generator),
                    Catch::Matchers::StartsWith("--attention: attention 'clustered-15' cannot honor a causal mask") &&
                        Catch::Matchers::ContainsSubstring("these can be causal: full, "));
}
