#include "core/functors.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tests/ops/ops_test.h"

TEST_CASE("the exponential of a float has a relative error below 2e-7 wherever it is a normal number", "[functors]") {
  double worst = 0;
  float at = 0;
  const auto look = [&](float x) {
    const double exact = std::exp(double(x));
    const auto judge = [&](float found) {
      const double error = std::abs(found - exact) / exact;
      if (!(error <= worst)) worst = error, at = x;
    };
    judge(exponential(x));
    if (x <= 88) judge(exponential_of_score(x));
  };
  // Evenly spaced over the range, denser around 0, and every float around both ends.
  for (int i = -8698; i < 8872; ++i)
    for (int j = 0; j < 100; ++j) look((float(i) + float(j) / 100) / 100);
  for (float x = 1e-30f; x < 1; x *= 1.01f) look(x), look(-x);
  const double maximum = std::numeric_limits<float>::max() * (1 - 2e-7);
  for (float x = 88.72f; std::exp(double(x)) <= maximum; x = std::nextafter(x, 100.0f)) look(x);
  INFO("at " << at);
  CHECK(worst < 2e-7);
}

TEST_CASE("the exponential of a float at its ends and beyond", "[functors]") {
  CHECK(exponential(0.0f) == 1);
  CHECK(exponential(-0.0f) == 1);
  for (float x : {-87.0f, -87.4f, -88.0f, -100.0f, -1e10f, -std::numeric_limits<float>::max(), -float(INFINITY)}) {
    INFO(x);
    CHECK(exponential(x) == 0);
    if (x <= -88) CHECK(exponential_of_score(x) == 0);
  }
  for (float x : {88.73f, 89.0f, 100.0f, 1e10f, std::numeric_limits<float>::max(), float(INFINITY)}) {
    INFO(x);
    CHECK(exponential(x) == INFINITY);
  }
  CHECK(std::isnan(exponential(NAN)));
  CHECK(std::isnan(exponential(-float(NAN))));
  CHECK(std::isnan(exponential_of_score(NAN)));
  CHECK(exponential(-INFINITY) == 0.0);  // the double version too
  CHECK(exponential(1.0) == std::exp(1.0));
  // It never increases from one float to the next smaller one.
  for (float x = -87.4f; x < -86.9f; x = std::nextafter(x, 0.0f))
    REQUIRE(exponential(x) <= exponential(std::nextafter(x, 0.0f)) * (1 + 2e-7f));
}

TEST_CASE("the logarithm of a float has a relative error below 2.5e-7, and is right at its ends", "[functors]") {
  double worst = 0;
  float at = 0;
  const auto look = [&](float x) {
    const double exact = std::log(double(x)), error = std::abs(logarithm(x) - exact) / std::abs(exact);
    if (x != 1 && !(error <= worst)) worst = error, at = x;
  };
  // Over the range, and more closely around 1, where the result is near 0.
  for (float x = std::numeric_limits<float>::min(); x < INFINITY; x *= 1.0003f) look(x);
  for (float x = 0.7f; x < 1.5f; x = std::nextafter(x, 2.0f)) look(x);
  INFO("at " << at);
  CHECK(worst < 2.5e-7);
  CHECK(logarithm(1.0f) == 0);
  CHECK(logarithm(0.0f) == -INFINITY);
  CHECK(logarithm(float(INFINITY)) == INFINITY);
  CHECK(std::isnan(logarithm(-1.0f)));
  CHECK(std::isnan(logarithm(float(NAN))));
  CHECK(logarithm(2.0) == std::log(2.0));
}

TEST_CASE("the normal distribution's cumulative function", "[functors]") {
  double worst = 0, worst_double = 0;
  for (float x = -40; x <= 40; x += 1.0f / 4096) {
    const double exact = 0.5 * std::erfc(-double(x) / std::sqrt(2.0));
    worst = std::max(worst, std::abs(normal_cdf(x) - exact));
    worst_double = std::max(worst_double, std::abs(normal_cdf(double(x)) - exact));
  }
  CHECK(worst < 3e-7);
  CHECK(worst_double < 1e-15);
  CHECK(normal_cdf(float(INFINITY)) == 1);
  CHECK(normal_cdf(-float(INFINITY)) == 0);
  CHECK(std::isnan(normal_cdf(float(NAN))));
  CHECK(std::isnan(normal_cdf(double(NAN))));
}
