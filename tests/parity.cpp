#include "tests/parity.h"

#include <algorithm>
#include <cmath>

using namespace cairn;

namespace {

// Sums of numbers around 1 whose exact result is 0 are no more than this in float32.
constexpr double rounding = 1e-6;

void check_same(const Results& a, const Results& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string difference = differs(a[i].value, b[i].value, is_floating(a[i].value.dtype()) ? tolerance : 0);
    INFO(a[i].name << ' ' << difference);
    CHECK(difference.empty());
  }
}

}  // namespace

void Cases::compare(const Bench& on_cuda, const Bench& on_cpu, double tolerance) const {
  for (const Case& test : cases_) {
    INFO(test.name);
    check_same(test.run(on_cuda), test.run(on_cpu), tolerance > 0 ? tolerance : test.tolerance);
  }
}

std::string cairn::test::differs(const Tensor& a, const Tensor& b, double tolerance) {
  if (a.shape() != b.shape()) return concat("has shape ", a.shape(), ", expected ", b.shape());
  const auto values = [](const Tensor& x) { return x.to(Device::cpu).cast(DType::float64).to_vector<double>(); };
  const std::vector<double> x = values(a), y = values(b);
  double maximum = 0;
  for (const double value : y)
    if (std::isfinite(value)) maximum = std::max(maximum, std::abs(value));
  const double scale = maximum > rounding ? maximum : 1;
  const auto beyond = [&](size_t i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) return false;
    return !(std::abs(x[i] - y[i]) <= tolerance * scale) || !std::isfinite(x[i]) || !std::isfinite(y[i]);
  };
  size_t first = x.size(), count = 0;
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!beyond(i)) continue;
    first = std::min(first, i), ++count;
    worst = std::max(worst, std::abs(x[i] - y[i]) / scale);
  }
  if (count == 0) return "";
  return concat("of shape ", a.shape(), " differs in ", count, " elements by up to ", worst, " of ", scale,
                ", tolerance ", tolerance, ": element ", first, " is ", x[first], ", expected ", y[first]);
}

TEST_CASE("a difference of small results is seen, and said to be where it is", "[gpu]") {
  using Catch::Matchers::ContainsSubstring;
  const auto of = [](std::vector<float> values) { return Tensor::from(values, {int64_t(values.size())}); };
  CHECK_THAT(differs(of({0.001f, 0.002f, 0.5f * 0.003f}), of({0.001f, 0.002f, 0.003f}), tolerance::bfloat16),
             ContainsSubstring("of shape [3] differs in 1 elements by up to 0.5") &&
                 ContainsSubstring("tolerance 0.0078125: element 2 is 0.0015, expected 0.003"));
  CHECK(differs(of({0.003f, 0.002f}), of({0.00301f, 0.002f}), tolerance::bfloat16) == "");
  CHECK(differs(of({3e-7f}), of({-3e-7f}), tolerance::float32) == "");  // rounding, where the result is 0
  CHECK(differs(of({NAN, INFINITY}), of({NAN, INFINITY}), 0) == "");
  for (const float other : {1.0f, float(INFINITY), -float(INFINITY)}) CHECK(differs(of({NAN}), of({other}), 1) != "");
  CHECK(differs(of({INFINITY}), of({1}), 1) != "");
  CHECK(differs(of({1, 2}), of({1}), 1) == "has shape [2], expected [1]");
}
