#include "core/random.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <type_traits>

#include "tests/ops/ops_test.h"

TEST_CASE("Philox 4x32-10 gives the known answers of Random123", "[random]") {
  const auto words = [](PhiloxWords counter, PhiloxKey key) {
    const PhiloxWords w = philox(key, counter);
    return std::vector<uint32_t>(w.w, w.w + 4);
  };
  CHECK(words({{0, 0, 0, 0}}, {0, 0}) == std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(words({{ones, ones, ones, ones}}, {ones, ones}) ==
        std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0}) ==
        std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static uint64_t key_of(uint64_t seed, uint64_t step, uint32_t layer, Purpose purpose) {
  const PhiloxKey key = Draw{seed, step, layer, purpose}.key();
  return uint64_t(key.a) << 32 | key.b;
}

TEST_CASE("draws of another seed, step, layer or purpose have another key; every bit counts", "[random]") {
  std::set<uint64_t> keys;
  size_t expected = 0;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}})
    for (uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63})
      for (uint32_t layer : {0u, 1u, 0xffffffffu})
        for (uint32_t purpose = 0; purpose <= uint32_t(Purpose::rotations); ++purpose) {
          keys.insert(key_of(seed, step, layer, Purpose(purpose)));
          ++expected;
        }
  CHECK(keys.size() == expected);
  CHECK(key_of(1, 2, 3, Purpose::planes) == key_of(1, 2, 3, Purpose::planes));
}

TEST_CASE("normal numbers have mean 0, variance 1, the tails of twelve uniform ones, and are exact", "[random]") {
  const PhiloxKey key{1, 2};
  const int n = 1000;
  double sum = 0, squares = 0, fourth = 0;
  int above_one = 0, above_two = 0;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = 0; j < n; ++j) {
      const float x = normal(key, i, j);
      sum += x, squares += double(x) * x, fourth += double(x) * x * x * x;
      above_one += std::abs(x) > 1, above_two += std::abs(x) > 2;
      if (j == 0) {
        REQUIRE(std::abs(x) <= 6);
        REQUIRE(x * 65536 == std::floor(x * 65536));  // a whole number of 2^-16
      }
    }
  const double count = double(n) * n;
  CHECK(std::abs(sum / count) <= 5 / std::sqrt(count));                  // five standard deviations
  CHECK(std::abs(squares / count - 1) <= 5 * std::sqrt(1.9 / count));    // Var x^2 = 1.9 for Irwin-Hall, n = 12
  CHECK(std::abs(fourth / count - 2.9) <= 5 * std::sqrt(80.0 / count));  // its fourth moment is 3 - 6 / (5 * 12)
  CHECK(std::abs(above_one / count - 0.3205) <= tolerance::frequency);   // numerically, for the same distribution
  CHECK(std::abs(above_two / count - 0.0454) <= tolerance::frequency);
}

TEST_CASE("below(n) and uniform(low, high) are uniform", "[random]") {
  CHECK(below(0, 7) == 0);
  CHECK(below(0xffffffff, 7) == 6);
  CHECK(below(0xffffffff, 1) == 0);
  CHECK(below(0xffffffff, 0xffffffff) == 0xfffffffe);
  RandomStream random(1, 0, Purpose::test);
  std::map<uint32_t, int> counts, quarters;
  const int n = 1'000'000;
  for (int i = 0; i < n; ++i) {
    ++counts[random.below(7)];
    ++quarters[uint32_t(random.uniform(-1, 3) + 1)];
  }
  CHECK(counts.size() == 7);
  CHECK(quarters.size() == 4);
  for (const auto& [value, count] : counts) CHECK(std::abs(double(count) / n - 1.0 / 7) <= tolerance::frequency);
  for (const auto& [value, count] : quarters) CHECK(std::abs(double(count) / n - 1.0 / 4) <= tolerance::frequency);
}

TEST_CASE("a stream gives the same sequence of numbers for the same seed, step and purpose", "[random]") {
  RandomStream a(1, 2, Purpose::data), b(1, 2, Purpose::data), c(1, 2, Purpose::test), d(1, 2, Purpose::data, 1);
  std::set<uint32_t> seen;
  int same = 0;
  for (int i = 0; i < 100; ++i) {
    const uint32_t x = a.next();
    CHECK(x == b.next());
    same += (x == c.next()) + (x == d.next());
    seen.insert(x);
  }
  CHECK(seen.size() == 100);
  CHECK(same == 0);
  for (int i = 0; i < 1000; ++i) {
    const double x = a.uniform(-2, 3);
    CHECK((x >= -2 && x < 3));
  }
}

TEST_CASE("shuffle gives every order as often", "[random]") {
  RandomStream random(3, 0, Purpose::test);
  std::map<std::vector<int>, int> times;
  for (int i = 0; i < 6000; ++i) {
    std::vector<int> values{1, 2, 3};
    shuffle(values, random);
    ++times[values];
  }
  CHECK(times.size() == 6);
  for (const auto& [order, n] : times) CHECK(std::abs(n - 1000) < 150);  // five standard deviations
}

TEST_CASE("random tensors take their numbers from the stream in order", "[random]") {
  RandomStream a(1, 0, Purpose::test), b(1, 0, Purpose::test);
  a.next(), b.next();
  for (const int64_t n : {3, 10001}) {  // the second one in several chunks, and both end in the middle of a Philox call
    int same = 0;
    for (float value : random_normal({n, 2}, a).to_vector<float>()) same += value == b.normal();
    for (float value : random_uniform({n}, -1, 1, a).to_vector<float>()) same += value == float(b.uniform(-1, 1));
    CHECK(same == 3 * n);
    CHECK(a.next() == b.next());
  }
  CHECK(random_normal({0, 3}, a).shape() == Shape{0, 3});
  CHECK(random_uniform({2}, 0, 1, a, DType::float64).dtype() == DType::float64);
}

TEST_CASE("uniform numbers are within their bounds after rounding to their type, too", "[random]") {
  RandomStream random(1, 0, Purpose::test);
  const auto check_inside = [&](DType dtype, double low, double high) {
    INFO(name(dtype) << " in [" << low << ", " << high << ")");
    for (const double x : as_double(random_uniform({10001}, low, high, random, dtype))) REQUIRE((x >= low && x < high));
  };
  check_inside(DType::float32, 1e6, 1e6 + 1);
  check_inside(DType::float64, 1e15, 1e15 + 1);
  check_inside(DType::bfloat16, 0, 1);
  check_inside(DType::bfloat16, 1000, 1008);
  check_inside(DType::int32, -4, -2);
  CHECK_ERROR(random_uniform({2}, 0, INFINITY, random), "random_uniform: from 0 to inf, expected finite numbers");
}

TEST_CASE("a generator's draws have the step at which they are made", "[random]") {
  static_assert(!std::is_copy_constructible_v<Generator> &&
                !std::is_copy_assignable_v<Generator>);  // nor can it be copied
  Generator generator(uint64_t{5} << 40);
  const Draw draw = generator.draw(3, Purpose::planes);
  CHECK(draw.seed == uint64_t{5} << 40);
  CHECK(draw.layer == 3);
  CHECK(draw.purpose == Purpose::planes);
  generator.advance();
  CHECK(generator.draw(3, Purpose::planes).step == 1);
  generator.set_step(9);
  CHECK(generator.draw(3, Purpose::planes).step == 9);
  CHECK(draw.step == 0);
  CHECK(generator.next_parameter() == 0);
  CHECK(generator.next_parameter() == 1);
  generator.set_first_example(int64_t{1} << 40);
  CHECK(draw.first == 0);
  const Draw later = generator.draw(3, Purpose::planes);
  CHECK(later.first == uint64_t{1} << 40);
  CHECK(later.for_kernel(6).first == uint64_t{6} << 40);
  CHECK(later.for_kernel(6).step == 9);
  CHECK(later.for_kernel(6).row(5) == 5);  // the lowest 32 bits
  CHECK(later.for_kernel().first == 0);
  CHECK_ERROR(generator.set_first_example(-1), "generator: the first example is -1, expected at least 0");
}
