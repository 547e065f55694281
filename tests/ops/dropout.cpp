#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/ops/operation.h"

static Draw draw_of(const Generator& generator) { return generator.draw(1, Purpose::feed_forward_dropout); }

namespace {

// p, and a draw of a batch that has `first` examples before these.
struct Drawn {
  double p;
  int64_t first = 0;

  Draw draw() const {
    Generator generator(7);
    generator.set_first_example(first);
    return generator.draw(3, Purpose::test);
  }
};

// dropout and dropout_add of {x, residual}.
Case& add(Operation& op, const Drawn& d, const Shape& shape) {
  Case& test = op.add(concat(shape, " p = ", d.p, " from example ", d.first), {normal(shape), normal(shape, 2)});
  test.forward = [d](const Variables& t) {
    return Variables{dropout(t[0], d.p, d.draw()), dropout_add(t[0], d.p, d.draw(), t[1])};
  };
  test.reference = [d](const Tensors& t) {
    const Shape& of = t[0].shape();
    const uint64_t before = of.rank() == 0 ? 0 : uint64_t(d.first * of.without(0).elements());
    const PhiloxKey key = d.draw().for_kernel().key();
    std::vector<double> y = as_double(t[0]), sum = as_double(t[1]);
    for (size_t i = 0; i < y.size(); ++i) {
      const uint64_t number = before + i, four = number / 4;
      const uint32_t word = philox(key, {{uint32_t(four), uint32_t(four >> 32), 0, 0}}).w[number % 4];
      const bool dropped = double(word) < double(float(d.p)) * 0x1p32;
      y[i] = dropped ? 0 : y[i] * double(1 / (1 - float(d.p)));  // the scale is computed in float32
      sum[i] += y[i];
    }
    return Tensors{from_doubles(y, of), from_doubles(sum, of)};
  };
  return test;
}

}  // namespace

OPERATION("dropout") {
  op.gradients_round_once = false;
  for (const double p : {0.3, 0.0, 0.5, 1.0})
    for (const Shape& shape : {Shape{3}, Shape{}, Shape{0, 3}, Shape{4}, Shape{2, 3, 7}, Shape{6, 5}, Shape{1031},
                               Shape{2, 4100}, Shape{50001}})
      for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{6}, (int64_t{1} << 35) + 3})
        add(op, {p, first}, shape);
  // More elements than the threads of the largest grid take at once.
  add(op, {0.25}, {(1 << 22) + 4099}).gradient = false;
}

TEST_CASE("dropout zeroes elements or scales them by 1 / (1 - p), in the right proportion", "[dropout]") {
  const Generator generator(3);
  const int64_t n = 1'000'000;
  for (DType dtype : {DType::float32, DType::float64})
    for (double p : {0.1, 0.5, 0.9}) {
      const auto y = as_double(dropout(Tensor::full({n}, 1, dtype), p, draw_of(generator)));
      const double saved = double(1 / (1 - float(p)));  // in float32, as the kernel computes it
      int64_t zeros = 0;
      double sum = 0;
      for (double value : y) {
        zeros += value == 0;
        sum += value;
        if (value != 0) REQUIRE(value == saved);
      }
      CHECK(std::abs(double(zeros) / double(n) - p) <= tolerance::frequency);
      CHECK(std::abs(sum / double(n) - 1) <= tolerance::frequency * saved);  // the expectation is kept
    }
}

TEST_CASE("dropout keeps everything at p = 0 and nothing at p = 1", "[dropout]") {
  const Generator generator(3);
  const Tensor x = random_tensor({1001}, DType::float32);
  CHECK(same_bits(dropout(x, 0, draw_of(generator)), x));
  for (float y : dropout(x, 1, draw_of(generator)).to_vector<float>()) REQUIRE(y == 0);
}

TEST_CASE("the same draw drops the same elements, whatever the length, and another one drops others", "[dropout]") {
  Generator generator(3);
  const Tensor ones = Tensor::full({10'001}, 1);
  const auto run = [&](uint32_t layer, Purpose purpose) {
    return dropout(ones, 0.5, generator.draw(layer, purpose)).to_vector<float>();
  };
  const auto first = run(1, Purpose::feed_forward_dropout);
  CHECK(first == run(1, Purpose::feed_forward_dropout));
  const auto shorter = dropout(Tensor::full({5}, 1), 0.5, draw_of(generator)).to_vector<float>();
  CHECK(std::equal(shorter.begin(), shorter.end(), first.begin()));
  const auto agreement = [&](const std::vector<float>& other) {
    int same = 0;
    for (size_t i = 0; i < first.size(); ++i) same += first[i] == other[i];
    return double(same) / double(first.size());
  };
  CHECK(std::abs(agreement(run(2, Purpose::feed_forward_dropout)) - 0.5) < 0.05);
  CHECK(std::abs(agreement(run(1, Purpose::attention_output_dropout)) - 0.5) < 0.05);
  generator.advance();
  CHECK(std::abs(agreement(run(1, Purpose::feed_forward_dropout)) - 0.5) < 0.05);
  // Neighbors are independent, and so are elements a vector apart.
  for (size_t apart : {1, 4, 16, 8192}) {
    int same = 0;
    for (size_t i = 0; i + apart < first.size(); ++i) same += first[i] == first[i + apart];
    CHECK(std::abs(double(same) / double(first.size() - apart) - 0.5) < 0.06);
  }
}

TEST_CASE("dropout refuses what it cannot compute", "[dropout]") {
  const Generator generator(3);
  const Tensor x({4});
  CHECK(dropout(Tensor({0, 3}), 0.5, draw_of(generator)).shape() == Shape{0, 3});
  CHECK_ERROR(dropout(x, -0.1, draw_of(generator)), "dropout: expected a probability, got -0.1");
  CHECK_ERROR(dropout(x, 1.1, draw_of(generator)), "dropout: expected a probability, got 1.1");
  CHECK_ERROR(dropout(x, NAN, draw_of(generator)), "dropout: expected a probability, got nan");
  CHECK_ERROR(dropout(x.cast(DType::int32), 0.5, draw_of(generator)), "dropout: x must be floating, got int32");
  CHECK_NEEDS_CUDA(dropout(elsewhere({0}), 0, {}), "dropout");
  CHECK_ERROR(dropout(x, 0.5, draw_of(generator), Tensor({1})), "dropout: expected the residual of shape [4], got [1]");
  CHECK_ERROR(dropout(x, 0.5, draw_of(generator), x.cast(DType::float64)),
              "dropout: the residual is float64, x is float32");
}
