#include "nn/optim/schedule.h"

#include <cmath>
#include <cstddef>

#include "core/error.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only

TEST_CASE("constant and warm-up", "[schedule]") {
  CHECK(WarmUp(0.25).learning_rate(0) == 0.25);
  CHECK(WarmUp(0.25).learning_rate(1000000) == 0.25);
  const WarmUp schedule(2, 4);
  const std::vector<double> expected{0.5, 1, 1.5, 2, 2, 2};
  for (size_t step = 0; step < expected.size(); ++step) CHECK(schedule.learning_rate(int64_t(step)) == expected[step]);
  CHECK(WarmUp(2, 1).learning_rate(0) == 2);
}

TEST_CASE("decays rise first, and end at zero", "[schedule]") {
  const LinearDecay linear(8, 6, 2);
  const std::vector<double> expected{4, 8, 8, 6, 4, 2, 0, 0};
  for (size_t step = 0; step < expected.size(); ++step) CHECK(linear.learning_rate(int64_t(step)) == expected[step]);
  const CosineDecay cosine(8, 4);
  CHECK(cosine.learning_rate(0) == 8);
  CHECK(cosine.learning_rate(1) == Approx(4 + 4 * std::sqrt(0.5)));
  CHECK(cosine.learning_rate(2) == Approx(4));
  CHECK(cosine.learning_rate(4) == Approx(0).margin(1e-15));
  CHECK(cosine.learning_rate(9) == Approx(0).margin(1e-15));
  CHECK_THROWS_AS(LinearDecay(8, 4, 4), UsageError);
  CHECK_THROWS_AS(CosineDecay(-1, 4), UsageError);
}

TEST_CASE("drop on plateau", "[schedule]") {
  DropOnPlateau schedule(8, {.factor = 0.5, .patience = 2, .threshold = 0.1});
  const auto rates = [&schedule](const std::vector<double>& metrics) {
    std::vector<double> result;
    for (double metric : metrics) {
      schedule.observe(metric);
      result.push_back(schedule.learning_rate(0));
    }
    return result;
  };
  using Values = std::vector<double>;
  CHECK(schedule.learning_rate(0) == 8);
  CHECK(rates({10, 10, 9.5, 8.9}) == Values{8, 8, 8, 8});  // 9.5 is less than a tenth better, 8.9 is better
  CHECK(rates({9, NAN, 8.5}) == Values{8, 8, 4});          // the third in a row that is no better
  CHECK(rates({9, 9}) == Values{4, 4});
  const Values saved = schedule.state();
  CHECK(rates({9}) == Values{2});
  CHECK(rates({9, 9, 9}) == Values{2, 2, 1});
  CHECK(rates({-1, -1.05, -1.2, -1, -1, -1}) == Values{1, 1, 1, 1, 1, 0.5});
  schedule.set_state(saved);
  CHECK(schedule.learning_rate(0) == 4);
  CHECK(rates({9, 9, 9}) == Values{2, 2, 2});
  CHECK(DropOnPlateau(1).state() == Values{1, INFINITY, 0});
}

TEST_CASE("schedules refuse bad settings and states", "[schedule]") {
  for (double bad : {-1.0, double(NAN), double(INFINITY)}) {
    CHECK_THROWS_AS(WarmUp(bad, 1), UsageError);
    CHECK_THROWS_AS(DropOnPlateau(bad), UsageError);
    CHECK_THROWS_AS(DropOnPlateau(1, {.factor = bad}), UsageError);
    CHECK_THROWS_AS(DropOnPlateau(1, {.threshold = bad}), UsageError);
  }
  CHECK_THROWS_AS(WarmUp(1, -1), UsageError);
  CHECK_THROWS_AS(DropOnPlateau(1, {.factor = 1}), UsageError);
  CHECK_THROWS_AS(DropOnPlateau(1, {.patience = -1}), UsageError);
  for (const std::vector<double>& state : {std::vector<double>{1, 2}, {1, 2, 0.5}, {NAN, 2, 0}})
    CHECK_THROWS_AS(DropOnPlateau(1).set_state(state), DataError);
  CHECK_THROWS_AS(WarmUp(1).set_state({1}), DataError);
}
