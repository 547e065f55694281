#include <algorithm>
#include <cmath>

#include "core/kernels/softmax.h"
#include "tests/ops/ops_test.h"

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
                    Catch::Matchers::ContainsSubstring("softmax: expected x of shape [..., C], got []"));
}

#if CAIRN_HAS_CUDA  // against the CPU

namespace {

// Rows of random numbers; the second of them all masked, every third element of the third.
Tensor random_rows(const Shape& shape, uint64_t seed) {
  Tensor x = affine(random_tensor(shape, DType::float32, seed), 3);
  for (int64_t i = 0; i < x.elements(); ++i)
    if (const int64_t row = i / shape[-1]; row == 1 || (row == 2 && i % shape[-1] % 3 == 0))
      x.mutable_data<float>()[i] = -INFINITY;
  return x;
}

}  // namespace

PARITY("softmax") {
  for (const Shape& shape : row_shapes)
    cases.add(label("softmax", shape), [=](const Bench& bench) -> Results {
      const Tensor x = bench.place(random_rows(shape, 1));
      const Tensor y = softmax(x), saved = bench.place(softmax(x.to(Device::cpu).cast(DType::float32)));
      return {{"y", y}, {"dx", softmax_backward(saved, bench.normal(shape, 4))}};
    });
  cases.add("softmax of rows of nothing", [](const Bench& bench) -> Results {
    return {{"y", softmax(bench.normal({5, 0}))}};
  });
}

TEST_CASE("softmax on CUDA may overwrite its input", "[gpu]") {
  for (const Rows size : {Rows{3, 100}, Rows{3, 1500}}) {
    const Shape shape{size.rows, size.cols};
    Tensor y = random_rows(shape, 5).to(Device::cuda), dx = random_tensor(shape, DType::float32).to(Device::cuda);
    const Tensor expected = softmax(y), gradient = softmax_backward(expected, dx);
    gpu::softmax_forward<float>({}, size, y.data<float>(), y.mutable_data<float>());
    gpu::softmax_backward<float>({}, size, y.data<float>(), dx.data<float>(), dx.mutable_data<float>());
    CHECK(y.to_vector<float>() == expected.to_vector<float>());
    CHECK(dx.to_vector<float>() == gradient.to_vector<float>());
  }
}

TEST_CASE("softmax on CUDA: masked rows give zeros, NaN and plus infinity give NaN", "[gpu]") {
  const float inf = INFINITY;
  for (const int64_t cols : {int64_t{5}, int64_t{70}, int64_t{1300}})
    for (const float rest : {1.0f, -inf}) {
      std::vector<float> x(size_t(4 * cols), rest);
      std::fill_n(x.begin(), cols, -inf);
      x[size_t(cols + cols - 1)] = NAN;
      x[size_t(2 * cols)] = inf;
      x[size_t(3 * cols + 2)] = -1e30f;
      INFO("cols " << cols << " rest " << rest);
      const auto y = softmax(Tensor::from(x, {4, cols}).to(Device::cuda)).to_vector<float>();
      for (int64_t c = 0; c < cols; ++c) {
        CHECK(y[size_t(c)] == 0);
        CHECK(std::isnan(y[size_t(cols + c)]));
        CHECK(std::isnan(y[size_t(2 * cols + c)]));
      }
      CHECK(difference(y, reference_softmax({x.begin(), x.end()}, cols)) <= tolerance::float32);
      CHECK(difference(softmax(Tensor::from(x, {4, cols})), {y.begin(), y.end()}) <= tolerance::float32);
    }
}

TEST_CASE("softmax on CUDA in bfloat16 is the float result, rounded", "[gpu]") {
  const auto rounded = [](const Tensor& x) { return x.to(Device::cpu).cast(DType::bfloat16); };
  const auto wide = [](const Tensor& x) { return x.to(Device::cpu).cast(DType::float32).to(Device::cuda); };
  for (const Shape& shape : {Shape{5, 33}, Shape{3, 1100}}) {
    const Tensor x = rounded(random_rows(shape, 6)).to(Device::cuda), y = softmax(x);
    CHECK(same_bits(y.to(Device::cpu), rounded(softmax(wide(x)))));
    const Tensor dy = rounded(random_tensor(shape, DType::float32)).to(Device::cuda);
    CHECK(same_bits(softmax_backward(y, dy).to(Device::cpu), rounded(softmax_backward(wide(y), wide(dy)))));
  }
}

TEST_CASE("softmax on CUDA gives the same bits wherever its rows start", "[gpu]") {
  check_any_start([](const Shape& shape, auto make) {
    const Tensor x = make(shape, -5, 5), y = make(shape, 0, 0.1), dy = make(shape, -1, 1);
    return std::vector<Tensor>{softmax(x), softmax_backward(y, dy)};
  });
}

#endif
