#include <algorithm>
#include <cmath>

#include "tests/ops/ops_test.h"

// Straight from the definition, in double.
static std::vector<double> reference_softmax(const std::vector<double>& x, int64_t cols) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += size_t(cols)) {
    double maximum = -INFINITY, sum = 0;
    for (int64_t c = 0; c < cols; ++c) maximum = std::max(maximum, x[row + c]);
    if (maximum == -INFINITY) continue;
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(x[row + c] - maximum);
    for (int64_t c = 0; c < cols; ++c) y[row + c] = std::exp(x[row + c] - maximum) / sum;
  }
  return y;
}

TEST_CASE("softmax agrees with its definition", "[softmax]") {
  for (const auto& shape : odd_shapes())
    for (DType dtype : {DType::float32, DType::float64}) {
      INFO(shape << ' ' << name(dtype));
      const Tensor x = random_tensor(shape, dtype, 3);
      CHECK(difference(softmax(x), reference_softmax(as_double(x), shape[-1])) <= tolerance_of(dtype));
    }
}

TEST_CASE("softmax of masked rows is zero and NaN stays in its row", "[softmax]") {
  const float inf = INFINITY, nan = NAN;
  const Tensor x = Tensor::from<float>({-inf, -inf, -inf, 0, -inf, 0, nan, 1, 2, inf, 0, 0}, {4, 3});
  const auto y = softmax(x).to_vector<float>();
  CHECK(std::vector<float>(y.begin(), y.begin() + 6) == std::vector<float>{0, 0, 0, 0.5, 0, 0.5});
  for (int i = 6; i < 9; ++i) CHECK(std::isnan(y[i]));
  CHECK(std::isnan(y[9]));
}

TEST_CASE("gradient of softmax", "[softmax][grad]") {
  CHECK_GRADIENT([](const auto& x) { return softmax(x[0]); }, random_tensor({3, 5}));
  CHECK_GRADIENT([](const auto& x) { return softmax(x[0]); }, random_tensor({4, 1}));
}

TEST_CASE("softmax refuses what it cannot compute", "[softmax]") {
  CHECK_THROWS_WITH(softmax(Tensor({2}, DType::int32)),
                    Catch::Matchers::ContainsSubstring("softmax: x must be floating"));
  CHECK_THROWS_WITH(softmax(Tensor(Shape{})),
                    Catch::Matchers::ContainsSubstring("softmax: expected at least one axis"));
}
