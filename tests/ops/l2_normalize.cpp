#include <cmath>

#include "tests/ops/ops_test.h"

// x and the gradient of its unit rows for dy, by the formulas.
static std::vector<double> reference(const Tensor& x, const Tensor& dy, bool gradient) {
  const auto row = as_double(x), g = as_double(dy);
  const auto cols = size_t(x.size(-1));
  std::vector<double> result(row.size());
  for (size_t first = 0; cols && first < row.size(); first += cols) {
    double squares = 0, along = 0;
    for (size_t c = first; c < first + cols; ++c) squares += row[c] * row[c];
    const double length = std::sqrt(squares);
    if (length == 0) continue;
    for (size_t c = first; c < first + cols; ++c) along += row[c] / length * g[c];
    for (size_t c = first; c < first + cols; ++c)
      result[c] = gradient ? (g[c] - row[c] / length * along) / length : row[c] / length;
  }
  return result;
}

TEST_CASE("rows of unit length, and their gradient", "[l2_normalize]") {
  for (const Shape& shape : odd_shapes())
    for (DType dtype : {DType::float32, DType::float64}) {
      INFO(shape << ' ' << name(dtype));
      const Tensor x = random_tensor(shape, dtype), dy = random_tensor(shape, dtype, 2);
      CHECK(difference(l2_normalize(x), reference(x, dy, false)) <= tolerance_of(dtype));
      CHECK(difference(l2_normalize_backward(x, dy), reference(x, dy, true)) <= tolerance_of(dtype));
    }
  CHECK_GRADIENT([](const auto& in) { return l2_normalize(in[0]); }, random_tensor({3, 4, 5}));
}

TEST_CASE("a row of zeros stays zeros and has no gradient", "[l2_normalize]") {
  const Tensor x = Tensor::from<float>({0, 0, 3, -4, 0, -0.0f}, {3, 2});
  CHECK(l2_normalize(x).to_vector<float>() == std::vector<float>{0, 0, 0.6f, -0.8f, 0, 0});
  const Tensor dx = l2_normalize_backward(x, Tensor::full({3, 2}, 5));
  CHECK(difference(dx, std::vector<double>{0, 0, 5 * 0.28 * 0.8, 5 * 0.28 * 0.6, 0, 0}) <= tolerance::float32);
}

TEST_CASE("rows whose squares overflow or vanish have unit length too", "[l2_normalize]") {
  for (float size : {1e-42f, 1e-30f, 1e30f, 3e38f}) {
    INFO(size);
    const Tensor y = l2_normalize(Tensor::from<float>({size, -size, 0}, {1, 3}));
    CHECK(difference(y, std::vector<double>{std::sqrt(0.5), -std::sqrt(0.5), 0}) <= tolerance::float32);
  }
}

TEST_CASE("NaN and infinity stay within their row", "[l2_normalize]") {
  for (float bad : {float(NAN), INFINITY}) {
    Tensor x = random_tensor({3, 4}, DType::float32);
    const auto clean = l2_normalize(x).to_vector<float>();
    x.mutable_data<float>()[5] = bad;
    const auto y = l2_normalize(x).to_vector<float>(), dx = l2_normalize_backward(x, x).to_vector<float>();
    CHECK(std::isnan(y[5]));
    CHECK(std::isnan(dx[5]));
    for (size_t i : {0, 1, 2, 3, 8, 9, 10, 11}) {
      CHECK(y[i] == clean[i]);
      CHECK(std::isfinite(dx[i]));
    }
  }
}

TEST_CASE("l2_normalize gives the same bits on any number of threads", "[l2_normalize]") {
  const Tensor x = random_tensor({3001, 17}, DType::float32), dy = random_tensor({3001, 17}, DType::float32, 2);
  check_any_threads([&] { return std::vector<Tensor>{l2_normalize(x), l2_normalize_backward(x, dy)}; });
}

TEST_CASE("l2_normalize refuses what it cannot compute", "[l2_normalize]") {
  CHECK_ERROR(l2_normalize(Tensor()), "l2_normalize: x was never given a value");
  CHECK_ERROR(l2_normalize(Tensor::zeros({2}, DType::int32)), "l2_normalize: x must be floating, got int32");
  CHECK_ERROR(l2_normalize(Tensor::zeros({})), "l2_normalize: expected x of shape [..., C], got []");
  CHECK_ERROR(l2_normalize_backward(Tensor({2, 3}), Tensor({3, 2})),
              "l2_normalize: expected the gradient of shape [2, 3], got [3, 2]");
  CHECK_NEEDS_CUDA(l2_normalize(elsewhere({0, 3})), "l2_normalize");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("l2_normalize") {
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{1, 1}, Shape{7}, Shape{2, 3, 5}, Shape{67, 131}})
    cases.add(label("l2_normalize", shape), [=](const Bench& bench) {
      const Variable x = bench.variable(bench.normal(shape));
      return with_gradients(bench, l2_normalize(x), {{"x", x}});
    });
  cases.add("l2_normalize of zeros, of tiny and of huge numbers", [](const Bench& bench) -> Results {
    const Tensor x = bench.place(Tensor::from<float>({0, -0.0f, 1e-37f, -1e-37f, 2e38f, 1e38f, 1, 0}, {4, 2}));
    // (Gradients of tiny rows are huge.)
    return {{"y", l2_normalize(x)}, {"dx", l2_normalize_backward(x, x)}};
  });
  cases.add("l2_normalize of NaN and infinity", [](const Bench& bench) -> Results {
    return {{"y", l2_normalize(bench.place(Tensor::from<float>({NAN, 1, INFINITY, 1, 3, 4}, {3, 2})))}};
  });
}

#endif
