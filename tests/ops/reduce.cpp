#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/ops/ops_test.h"

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
          CHECK(difference(y, reference_reduce(op, x, shape.with(axis, 1))) <=
                (op == Reduce::max ? 0 : tolerance_of(dtype)));
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
    CHECK(sum_all(x).shape() == Shape{});
    CHECK(difference(sum_all(x), reference_reduce(Reduce::sum, x, {})) <= tolerance::float64);
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
    CHECK(difference(y, reference_reduce(Reduce::sum, x, small)) <= tolerance::float64);
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

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("reduce") {
  const std::tuple<Shape, int> sizes[] = {{{0}, 0},       {{1}, 0},           {{31}, 0},          {{1025}, 0},
                                          {{7, 1024}, 1}, {{5, 1031}, 1},     {{0, 3}, 0},        {{3, 0}, 1},
                                          {{3, 0, 2}, 1}, {{5, 1}, 1},        {{2, 3, 5}, 1},     {{2, 513, 33}, 1},
                                          {{1537, 2}, 0}, {{2, 40000}, 1},    {{67, 13}, 1},      {{67, 13}, 0},
                                          {{1, 97}, 0},   {{3, 2, 1, 67}, 2}, {{2, 16385, 1}, 1}, {{3, 52429}, 1}};
  for (const auto& [shape, axis] : sizes)
    for (const Reduce op : {Reduce::sum, Reduce::max})
      cases.add(
          label(op == Reduce::sum ? "sum" : "max", shape) + " over axis " + std::to_string(axis),
          [op, shape = shape, axis = axis](const Bench& bench) -> Results {
            return {{"y", reduce(op, bench.uniform(shape, -0.25, 0.3), axis)}};
          },
          op == Reduce::max);
  cases.add("sums of all elements, and of those that were stretched", [](const Bench& bench) -> Results {
    const Tensor x = bench.uniform({3, 5, 41}, -0.5, 0.5);
    return {{"of all", sum_all(x)},
            {"to [41]", sum_to(x, {41})},
            {"to [5, 1]", sum_to(x, {5, 1})},
            {"to [3, 1, 1]", sum_to(x, {3, 1, 1})}};
  });
  cases.add("a maximum with NaN and infinities", [](const Bench& bench) -> Results {
    Results results;
    for (const int64_t n : {5, 70, 1500, 20000}) {
      std::vector<float> x(size_t(6 * n), -1);
      x[size_t(n - 1)] = NAN;
      x[size_t(n)] = INFINITY;
      x[size_t(2 * n)] = NAN, x[size_t(2 * n + 1)] = INFINITY;
      std::fill_n(x.begin() + 3 * n, n, -INFINITY);
      const Tensor rows = bench.place(Tensor::from(x, {6, n}));
      results.push_back({concat("max of ", n), reduce(Reduce::max, rows, 1)});
      results.push_back({concat("sum of ", n), reduce(Reduce::sum, rows, 1)});
      results.push_back({concat("max over axis 0 of ", n), reduce(Reduce::max, rows, 0)});
    }
    return results;
  });
  cases.add("reductions with gradients", [](const Bench& bench) {
    const Variable x = bench.variable(bench.uniform({7, 33}, -0.5, 0.5)), bias = bench.variable(bench.normal({33}, 2));
    return with_gradients(bench, sum(x * bias, 0) + mean(x) + broadcast_to(bias, {33}), {{"x", x}, {"bias", bias}});
  });
}

#endif
