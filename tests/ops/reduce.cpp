#include <algorithm>
#include <cmath>

#include "tests/ops/ops_test.h"

// Over one axis, element by element.
static std::vector<double> reference(Reduce op, const Tensor& x, int axis) {
  const Shape& shape = x.shape();
  axis = shape.normalize(axis);
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  std::vector<double> result(size_t(outer * inner), op == Reduce::sum ? 0.0 : -INFINITY);
  const auto values = as_double(x);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t j = 0; j < shape[axis]; ++j)
      for (int64_t i = 0; i < inner; ++i) {
        double& y = result[size_t(o * inner + i)];
        const double value = values[size_t((o * shape[axis] + j) * inner + i)];
        y = op == Reduce::sum ? y + value : std::max(y, value);
      }
  return result;
}

TEST_CASE("sum and maximum over any axis agree with their definitions", "[reduce]") {
  const Shape shapes[] = {{1},    {7},       {0},       {3, 5},     {5, 1, 2}, {2, 3, 4, 5},  {0, 3},
                          {3, 0}, {2, 0, 3}, {67, 131}, {2, 70000}, {1100, 3}, {2, 1030, 17}, {100000}};
  for (const Shape& shape : shapes)
    for (DType dtype : {DType::float32, DType::float64}) {
      const Tensor x = random_tensor(shape, dtype, 3);
      for (int axis = -shape.rank(); axis < shape.rank(); ++axis)
        for (Reduce op : {Reduce::sum, Reduce::max}) {
          INFO(shape << " axis " << axis << (op == Reduce::sum ? " sum " : " max ") << name(dtype));
          const Tensor y = reduce(op, x, axis);
          CHECK(y.shape() == shape.without(axis));
          CHECK(difference(y, reference(op, x, axis)) <= (op == Reduce::max ? 0 : tolerance_of(dtype)));
        }
    }
}

TEST_CASE("a maximum with a NaN is NaN, wherever it stands", "[reduce]") {
  for (int64_t n : {3, 40, 70000})
    for (int64_t at : {int64_t{0}, n / 2, n - 1})
      for (int64_t inner : {1, 2}) {
        Tensor x = random_tensor({n, inner}, DType::float32);
        x.mutable_data<float>()[at * inner] = NAN;
        const auto maximum = reduce(Reduce::max, x, 0).to_vector<float>();
        CHECK(std::isnan(maximum[0]));
        if (inner == 2) CHECK(std::isfinite(maximum[1]));
      }
}

TEST_CASE("the sum over all elements", "[reduce]") {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 5}, Shape{100, 1001}}) {
    const Tensor x = random_tensor(shape);
    double expected = 0;
    for (double value : as_double(x)) expected += value;
    CHECK(sum_all(x).shape() == Shape{});
    CHECK(difference(sum_all(x), {expected}) <= tolerance::float64);
  }
}

TEST_CASE("sum_to is the transpose of broadcasting", "[reduce]") {
  const Shape big{2, 3, 4, 5};
  const Tensor x = random_tensor(big);
  for (const Shape& small : {Shape{}, Shape{1}, Shape{5}, Shape{4, 5}, Shape{4, 1}, Shape{3, 4, 5}, Shape{3, 1, 1},
                             Shape{1, 4, 1}, Shape{3, 1, 5}, Shape{1, 1, 1, 1}, Shape{2, 1, 1, 1}, Shape{1, 3, 4, 1},
                             Shape{2, 1, 4, 1}, Shape{1, 3, 1, 5}, Shape{2, 3, 1, 5}, Shape{2, 3, 4, 5}}) {
    INFO(small);
    const Tensor y = sum_to(x, small);
    CHECK(y.shape() == small);
    // Each element of x goes to where it would come from.
    std::vector<double> expected(size_t(small.elements()), 0.0);
    const auto values = as_double(x);
    for (int64_t i = 0; i < x.elements(); ++i) {
      int64_t rest = i, place = 0, stride = 1;
      for (int axis = 1; axis <= small.rank(); ++axis) {
        place += (small[-axis] == 1 ? 0 : rest % big[-axis]) * stride;
        stride *= small[-axis];
        rest /= big[-axis];
      }
      expected[size_t(place)] += values[size_t(i)];
    }
    CHECK(difference(y, expected) <= tolerance::float64);
    const Tensor back = broadcast_to(y, big);
    CHECK(back.shape() == big);
    CHECK(difference(sum_to(back, small), affine(y, double(big.elements()) / double(small.elements()))) <=
          tolerance::float64);
  }
  CHECK(sum_to(Tensor({0, 3}), {3}).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(sum_to(Tensor({3, 0}), {1, 1}).to_vector<float>() == std::vector<float>{0});
}

TEST_CASE("broadcast_to repeats", "[reduce]") {
  const Tensor x = Tensor::from<float>({1, 2}, {2, 1});
  CHECK(broadcast_to(x, {2, 3}).to_vector<float>() == std::vector<float>{1, 1, 1, 2, 2, 2});
  CHECK(broadcast_to(x, {2, 2, 1}).to_vector<float>() == std::vector<float>{1, 2, 1, 2});
  CHECK(broadcast_to(x, {2, 0}).elements() == 0);
}

TEST_CASE("gradients of reductions, reshaping and broadcasting", "[reduce][grad]") {
  const Tensor x = random_tensor({2, 3, 4});
  CHECK_GRADIENT([](const auto& in) { return sum(square(in[0])); }, x);
  CHECK_GRADIENT([](const auto& in) { return mean(square(in[0])); }, x);
  for (int axis : {0, 1, 2, -1}) {
    CHECK_GRADIENT([=](const auto& in) { return sum(square(in[0]), axis); }, x);
    CHECK_GRADIENT([=](const auto& in) { return mean(square(in[0]), axis); }, x);
  }
  CHECK_GRADIENT([](const auto& in) { return reshape(square(in[0]), {6, 4}); }, x);
  CHECK_GRADIENT([](const auto& in) { return broadcast_to(square(in[0]), {5, 2, 3, 4}); }, x);
  CHECK_GRADIENT([](const auto& in) { return broadcast_to(square(in[0]), {2, 3}); }, random_tensor({2, 1}));
  CHECK(mean(Variable(Tensor::full({4, 2}, 3)), 0).value().to_vector<float>() == std::vector<float>{3, 3});
  CHECK(mean(Variable(Tensor::full({4, 2}, 3))).value().item() == 3);
}

TEST_CASE("reductions give the same bits on any number of threads", "[reduce]") {
  const Tensor rows = random_tensor({3, 70001}, DType::float32), cols = random_tensor({3, 1201, 7}, DType::float32);
  check_any_threads([&] {
    return std::vector<Tensor>{reduce(Reduce::sum, rows, 1), reduce(Reduce::sum, cols, 1), sum_all(cols),
                               sum_to(cols, {1201, 1})};
  });
}

TEST_CASE("reductions refuse what they cannot compute", "[reduce]") {
  const Tensor x({2, 3});
  CHECK_ERROR(reduce(Reduce::sum, Tensor(), 0), "reduce: x was never given a value");
  CHECK_ERROR(reduce(Reduce::sum, x.cast(DType::int32), 0), "reduce: x must be floating, got int32");
  CHECK_ERROR(reduce(Reduce::sum, x, 2), "reduce: axis 2 out of range for [2, 3]");
  CHECK_ERROR(reduce(Reduce::max, Tensor(Shape{}), 0), "reduce: axis 0 out of range for []");
  CHECK_ERROR(sum_all(Tensor()), "sum: x was never given a value");
  CHECK_ERROR(sum_to(x, {2}), "sum_to: shapes [2, 3] and [2] do not broadcast");
  CHECK_ERROR(sum_to(x, {4, 2, 3}), "sum_to: [4, 2, 3] does not broadcast to [2, 3]");
  CHECK_ERROR(sum_to(x.cast(DType::int32), {3}), "sum_to: x must be floating, got int32");
  CHECK_ERROR(broadcast_to(x, {3}), "broadcast_to: [2, 3] does not broadcast to [3]");
  CHECK_ERROR(broadcast_to(x, {3, 3}), "broadcast_to: shapes [2, 3] and [3, 3] do not broadcast");
  CHECK_ERROR(broadcast_to(x.cast(DType::int32), {2, 2, 3}), "broadcast_to: x must be floating, got int32");
  CHECK_NEEDS_CUDA(reduce(Reduce::sum, elsewhere({0, 2}), 1), "reduce");
}
