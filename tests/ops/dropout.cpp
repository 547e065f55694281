#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/ops/ops_test.h"

static Draw draw_of(const Generator& generator) { return generator.draw(1, Purpose::feed_forward_dropout); }

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

TEST_CASE("dropout decides over an element by its number within the whole batch", "[dropout]") {
  Generator generator(3);
  for (const Shape& shape : {Shape{6, 5}, Shape{3, 8}, Shape{2, 3, 7}, Shape{4}, Shape{}, Shape{0, 3}, Shape{2, 9001}})
    for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{1} << 35}) {
      INFO(shape << " from example " << first);
      generator.set_first_example(first);
      const auto y = dropout(Tensor::full(shape, 1), 0.5, draw_of(generator)).to_vector<float>();
      const uint64_t before = shape.rank() == 0 ? 0 : uint64_t(first * shape.without(0).elements());
      const PhiloxKey key = draw_of(generator).for_kernel().key();
      for (size_t i = 0; i < y.size(); ++i) {
        const uint64_t in_whole = before + i, four = in_whole / 4;
        const PhiloxWords words = philox(key, {{uint32_t(four), uint32_t(four >> 32), 0, 0}});
        REQUIRE(y[i] == (words.w[in_whole % 4] >> 31 ? 2 : 0));
      }
    }
}

TEST_CASE("the gradient of dropout uses the mask of the forward pass", "[dropout][grad]") {
  const Generator generator(3);
  const Variable x(Tensor::full({20'000}, 1), true);
  const Variable y = dropout(x, 0.3, draw_of(generator));
  backward(sum(y));
  CHECK(same_bits(x.grad(), y.value()));
  CHECK_GRADIENT([&](const auto& in) { return dropout(square(in[0]), 0.3, draw_of(generator)); },
                 random_tensor({3, 7}));
}

// Its reference is the sum, composed.
TEST_CASE("dropout_add is a sum with dropout, to the bit, and so are its gradients", "[dropout]") {
  const Generator generator(3);
  for (DType dtype : {DType::float32, DType::float64})
    for (const Shape& shape : odd_shapes())
      for (double p : {0.0, 0.3, 1.0}) {
        INFO(shape << ' ' << name(dtype) << ' ' << p);
        const Tensor dy = random_tensor(shape, dtype, 3);
        const auto run = [&](auto&& f) {
          const Variable x(random_tensor(shape, dtype, 1), true), residual(random_tensor(shape, dtype, 2), true);
          const Variable y = f(x, residual);
          backward(y, dy);
          return std::vector<Tensor>{y.value(), x.grad(), residual.grad()};
        };
        const auto fused = run([&](auto& x, auto& r) { return dropout_add(x, p, draw_of(generator), r); });
        const auto composed = run([&](auto& x, auto& r) { return r + dropout(x, p, draw_of(generator)); });
        for (size_t i = 0; i < 3; ++i) CHECK(same_bits(fused[i], composed[i]));
        const Tensor x = random_tensor(shape, dtype, 1), residual = random_tensor(shape, dtype, 2);
        CHECK(same_bits(dropout_add(x, p, draw_of(generator), residual), fused[0]));  // p = 0, too
      }
  CHECK_GRADIENT([&](const auto& in) { return dropout_add(square(in[0]), 0.3, draw_of(generator), square(in[1])); },
                 random_tensor({3, 7}), random_tensor({3, 7}, DType::float64, 2));
}

TEST_CASE("dropout gives the same bits on any number of threads", "[dropout]") {
  const Generator generator(3);
  const Tensor x = random_tensor({50'001}, DType::float32);
  check_any_threads([&] {
    return std::vector<Tensor>{dropout(x, 0.3, draw_of(generator)), dropout_add(x, 0.3, draw_of(generator), x)};
  });
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
  CHECK_ERROR(dropout_add(x, 1.1, draw_of(generator), x), "dropout_add: expected a probability, got 1.1");
  CHECK_ERROR(dropout_add(x, 0.5, draw_of(generator), Tensor({1})),
              "dropout_add: expected the residual of shape [4], got [1]");
  CHECK_ERROR(dropout_add(x, 0.5, draw_of(generator), Tensor()), "dropout_add: the residual was never given a value");
  CHECK_ERROR(dropout_add(x, 0.5, draw_of(generator), x.cast(DType::float64)),
              "dropout_add: the residual is float64, x is float32");
  CHECK_NEEDS_CUDA(dropout_add(elsewhere({0}), 0, {}, elsewhere({0})), "dropout_add");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("dropout") {
  for (const int64_t n : {0, 1, 3, 4, 1031, 4100})
    for (const double p : {0.0, 0.1, 0.5, 1.0})
      for (const int64_t skip : {0, 1})
        for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{6}, (int64_t{1} << 35) + 3})
          cases.add(
              concat(label("dropout", {n}), " with p = ", p, " from example ", first, skip ? ", not aligned" : ""),
              [=](const Bench& bench) -> Results {
                Generator generator(7);
                generator.set_first_example(first);
                const Draw draw = generator.draw(3, Purpose::test);
                const Tensor x = bench.shifted({n}, 1, 2, 1, skip);
                const Tensor y = dropout(x, p, draw);
                const Tensor residual = bench.shifted({n}, -2, 0, 2, skip);
                return {
                    {"y", y}, {"kept", y.cast(DType::boolean)}, {"with residual", dropout_add(x, p, draw, residual)}};
              },
              true);
  cases.add("dropout of more elements than the threads of the largest grid take at once",
            [](const Bench& bench) -> Results {
              Generator generator(8);
              generator.set_step(5);
              const Tensor x = bench.place(Tensor::full({(1 << 22) + 4099}, 1));
              return {{"kept", dropout(x, 0.25, generator.draw(0, Purpose::test)).cast(DType::boolean)}};
            });
  cases.add("dropout with gradients", [](const Bench& bench) {
    const Generator generator(9);
    const Variable x = bench.variable(bench.normal({7, 13}));
    return with_gradients(bench, dropout(x, 0.3, generator.draw(1, Purpose::test)), {{"x", x}});
  });
  cases.add("dropout_add with gradients", [](const Bench& bench) {
    const Generator generator(9);
    const Variable x = bench.variable(bench.normal({7, 13})), residual = bench.variable(bench.normal({7, 13}, 2));
    const Draw draw = generator.draw(1, Purpose::test);
    return with_gradients(bench, dropout_add(x, 0.3, draw, residual), {{"x", x}, {"residual", residual}});
  });
}

#endif
