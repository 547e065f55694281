#include <cmath>
#include <utility>

#include "tests/ops/ops_test.h"

namespace {

const Binary binaries[] = {Binary::add, Binary::subtract, Binary::multiply, Binary::divide};
const std::pair<Shape, Shape> broadcasts[] = {
    {{}, {}},
    {{7}, {7}},
    {{7}, {}},
    {{7}, {1}},
    {{1031}, {1031}},
    {{1031}, {}},
    {{}, {1031}},
    {{67, 1}, {1, 13}},
    {{3, 5}, {5}},
    {{3, 5}, {3, 1}},
    {{3, 1}, {1, 5}},
    {{3, 1}, {5}},
    {{2, 3, 4}, {3, 4}},
    {{2, 3, 4}, {1, 3, 1}},
    {{2, 3, 4}, {2, 1, 4}},
    {{2, 1, 4}, {3, 1}},
    {{1, 1, 1}, {2, 1}},
    {{2, 3, 4, 5}, {3, 1, 5}},
    {{2, 3, 4, 5}, {2, 3, 4, 5}},
    {{2, 3, 4, 5}, {3, 1, 1}},
    {{3, 1, 5, 1, 2}, {4, 1, 7, 1}},
    {{2, 1, 3, 1, 2, 1}, {4, 1, 3, 1, 5}},
    {{1, 2, 1, 2, 1, 2}, {2, 1, 2, 1, 2, 1}},
    {{0}, {1}},
    {{2, 0, 3}, {1, 3}},
    {{3, 0}, {}},
    {{40000}, {1}},       // more than a thread's share
    {{300, 200}, {200}},  // in rows
    {{3, 20000}, {3, 1}},
};
const Unary unaries[] = {Unary::negate, Unary::exp, Unary::log, Unary::sqrt, Unary::square, Unary::relu, Unary::gelu};

// Positive numbers where the function needs them.
Tensor operand_of(Unary op, const Shape& shape, DType dtype) {
  const Tensor x = random_tensor(shape, dtype, 3);
  return op == Unary::log || op == Unary::sqrt ? affine(binary(Binary::multiply, x, x), 1, 0.5) : x;
}

}  // namespace

TEST_CASE("variables and numbers mix in every order", "[elementwise][grad]") {
  CHECK_GRADIENT([](const auto& x) { return 2.0 * x[0] * 3.0 + (1.0 - x[0]) / 4.0 - 0.5 + (2.0 + (x[0] - 1.0)); },
                 random_tensor({3}));
  const Variable x(Tensor::full({1}, 3));
  CHECK((2.0 * x * 3.0 + (1.0 - x) / 4.0 - 0.5 + (2.0 + (x - 1.0))).value().item() == 18 - 0.5 - 0.5 + 4);
}

TEST_CASE("binary functions agree with their definitions, for every way of broadcasting", "[elementwise]") {
  for (const auto& [left, right] : broadcasts)
    for (bool swapped : {false, true})
      for (Binary op : binaries)
        for (DType dtype : {DType::float32, DType::float64}) {
          const Shape &shape_a = swapped ? right : left, &shape_b = swapped ? left : right;
          INFO(name(op) << ' ' << shape_a << ' ' << shape_b << ' ' << name(dtype));
          const Tensor a = random_tensor(shape_a, dtype, 1), b = affine(random_tensor(shape_b, dtype, 2), 0.1, 2);
          const Tensor y = binary(op, a, b);
          const Shape shape = broadcast(shape_a, shape_b, "test");
          REQUIRE(y.shape() == shape);
          std::vector<double> expected = broadcasted(a, shape);
          const std::vector<double> z = broadcasted(b, shape);
          for (size_t i = 0; i < z.size(); ++i) expected[i] = formula(op, expected[i], z[i]);
          CHECK(difference(y, expected) <= tolerance_of(dtype));
        }
}

TEST_CASE("functions of one element agree with their definitions, and so do their derivatives", "[elementwise]") {
  for (Unary op : unaries)
    for (DType dtype : {DType::float32, DType::float64})
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{3, 5}, Shape{40001}}) {
        INFO(name(op) << ' ' << name(dtype) << ' ' << shape);
        const Tensor x = operand_of(op, shape, dtype), dy = random_tensor(shape, dtype, 4);
        std::vector<double> y = as_double(x), dx = y;
        const auto g = as_double(dy);
        for (size_t i = 0; i < y.size(); ++i) dx[i] = reference_derivative(op, y[i]) * g[i], y[i] = formula(op, y[i]);
        CHECK(difference(unary(op, x), y) <= tolerance_of(dtype));
        CHECK(difference(unary_backward(op, x, dy), dx) <= tolerance_of(dtype));
      }
}

TEST_CASE("functions of one element at their edges", "[elementwise]") {
  for (DType dtype : {DType::float32, DType::float64}) {
    const auto at = [&](Unary op, double x) { return unary(op, Tensor::full({}, x, dtype)).item(); };
    CHECK(at(Unary::relu, -1) == 0);
    CHECK(at(Unary::relu, 0) == 0);
    CHECK(std::isnan(at(Unary::relu, NAN)));
    CHECK(at(Unary::gelu, -INFINITY) == 0);
    CHECK(at(Unary::gelu, INFINITY) == INFINITY);
    CHECK(at(Unary::gelu, -50) == 0);
    CHECK(at(Unary::gelu, 50) == 50);
    CHECK(std::isnan(at(Unary::gelu, NAN)));
    CHECK(at(Unary::exp, -INFINITY) == 0);
    CHECK(at(Unary::exp, INFINITY) == INFINITY);
    CHECK(at(Unary::log, 0) == -INFINITY);
    CHECK(std::isnan(at(Unary::log, -1)));
    CHECK(std::isnan(at(Unary::sqrt, -1)));
    const auto slope = [&](Unary op, double x) {
      return unary_backward(op, Tensor::full({}, x, dtype), Tensor::full({}, 1, dtype)).item();
    };
    CHECK(slope(Unary::relu, 0) == 0);
    CHECK(slope(Unary::gelu, 50) == 1);
    CHECK(slope(Unary::gelu, -50) == 0);
  }
}

TEST_CASE("affine and accumulate", "[elementwise]") {
  for (DType dtype : {DType::float32, DType::float64})
    for (const Shape& shape : odd_shapes()) {
      const Tensor x = random_tensor(shape, dtype, 1);
      Tensor y = random_tensor(shape, dtype, 2);
      auto expected = as_double(x), sum = as_double(y);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += -0.5 * expected[i], expected[i] = 3 * expected[i] - 2;
      CHECK(difference(affine(x, 3, -2), expected) <= tolerance_of(dtype));
      accumulate(y, x, -0.5);
      CHECK(difference(y, sum) <= tolerance_of(dtype));
    }
}

TEST_CASE("gradients of functions of one element", "[elementwise][grad]") {
  const Tensor x = random_tensor({2, 3}), positive = operand_of(Unary::log, {2, 3}, DType::float64);
  CHECK_GRADIENT([](const auto& in) { return -in[0]; }, x);
  CHECK_GRADIENT([](const auto& in) { return exp(in[0]); }, x);
  CHECK_GRADIENT([](const auto& in) { return log(in[0]); }, positive);
  CHECK_GRADIENT([](const auto& in) { return sqrt(in[0]); }, positive);
  CHECK_GRADIENT([](const auto& in) { return square(in[0]); }, x);
  CHECK_GRADIENT([](const auto& in) { return relu(in[0]); }, x);
  CHECK_GRADIENT([](const auto& in) { return gelu(in[0]); }, x);
  CHECK_GRADIENT([](const auto& in) { return 2.5 * in[0] + -1.0; }, x);
}

TEST_CASE("gradients of functions of two elements, broadcast", "[elementwise][grad]") {
  for (const auto& [a, b] : {std::pair<Shape, Shape>{{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 1}, {3}}, {{}, {2, 2}}}) {
    INFO(a << ' ' << b);
    const Tensor x = random_tensor(a), y = affine(random_tensor(b, DType::float64, 2), 0.1, 2);
    CHECK_GRADIENT([](const auto& in) { return in[0] + in[1]; }, x, y);
    CHECK_GRADIENT([](const auto& in) { return in[0] - in[1]; }, x, y);
    CHECK_GRADIENT([](const auto& in) { return in[0] * in[1]; }, x, y);
    CHECK_GRADIENT([](const auto& in) { return in[0] / in[1]; }, x, y);
  }
  CHECK_GRADIENT([](const auto& in) { return in[0] * in[0] / (in[0] + 5.0); }, random_tensor({4}));
}

TEST_CASE("elementwise functions refuse what they cannot compute", "[elementwise]") {
  const Tensor x({2, 3}), i = Tensor({2, 3}, DType::int32), d = Tensor({2, 3}, DType::float64);
  CHECK_ERROR(binary(Binary::add, x, Tensor({2, 2})),
              "add: shapes [2, 3] and [2, 2] do not broadcast: sizes 3 and 2 of axis 1 differ and neither is 1");
  CHECK_ERROR(binary(Binary::subtract, x, d), "subtract: the second operand is float64, the first operand is float32");
  CHECK_ERROR(binary(Binary::multiply, i, i), "multiply: the first operand must be floating, got int32");
  CHECK_ERROR(binary(Binary::divide, x, Tensor()), "divide: the second operand was never given a value");
  CHECK_ERROR(binary(Binary::add, x, elsewhere({0})), "add: the second operand is on cuda, the first operand on cpu");
  CHECK_ERROR(unary(Unary::exp, i), "exp: x must be floating, got int32");
  CHECK_ERROR(unary(Unary::gelu, Tensor()), "gelu: x was never given a value");
  CHECK_ERROR(unary(Unary::exp, Tensor({2}, DType::bfloat16)), "exp: bfloat16 is not computed on cpu");
  CHECK_ERROR(unary_backward(Unary::log, x, Tensor({3, 2})), "log: expected the gradient of shape [2, 3], got [3, 2]");
  CHECK_ERROR(unary_backward(Unary::log, x, d), "log: the gradient is float64, x is float32");
  CHECK_ERROR(affine(i, 1, 1), "affine: x must be floating, got int32");
  Tensor y({3, 2});
  CHECK_ERROR(accumulate(y, x), "accumulate: expected x of shape [3, 2], got [2, 3]");
  CHECK_ERROR(accumulate(y, d), "accumulate: x is float64, y is float32");
  Tensor cuda = elsewhere({0, 3});
  CHECK_NEEDS_CUDA(unary(Unary::relu, cuda), "relu");
  CHECK_NEEDS_CUDA(unary_backward(Unary::relu, cuda, cuda), "relu");
  CHECK_NEEDS_CUDA(binary(Binary::add, cuda, cuda), "add");
  CHECK_NEEDS_CUDA(affine(cuda, 1), "affine");
  CHECK_NEEDS_CUDA(accumulate(cuda, cuda), "accumulate");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("elementwise") {
  for (const int64_t n : {0, 1, 7, 257, 4099})
    for (const Unary op : unaries)
      cases.add(label(name(op), {n}), [=](const Bench& bench) -> Results {
        const bool positive = op == Unary::log || op == Unary::sqrt;
        const Tensor x = bench.uniform({n}, positive ? 0.25 : -3, 3), dy = bench.normal({n}, 2);
        return {{"y", unary(op, x)}, {"dx", unary_backward(op, x, dy)}};
      });
  for (const auto& [a, b] : broadcasts)
    for (const Binary op : binaries)
      cases.add(label(name(op), a) + " and " + to_string(b), [=, a = a, b = b](const Bench& bench) -> Results {
        return {{"y", binary(op, bench.normal(a), bench.uniform(b, 0.5, 2, 2))}};
      });
  for (const int64_t n : {0, 1, 1031})
    cases.add(label("affine and accumulate", {n}), [=](const Bench& bench) -> Results {
      Tensor y = bench.normal({n}, 2);
      accumulate(y, bench.normal({n}), -0.75);
      return {{"affine", affine(bench.normal({n}), 1.5, -0.25)}, {"sum", y}};
    });
  cases.add("addresses that no pack of elements starts at", [](const Bench& bench) -> Results {
    const Tensor x = bench.normal({1000});
    Tensor y = bench.normal({1001}, 2);
    Tensor part = y.slice(1, 1001);
    accumulate(part, x, 0.5);
    return {{"square", unary(Unary::square, y.slice(3, 778))}, {"sum", y}};
  });
  // 4096 blocks of 256 threads, each of which has four elements.
  cases.add("more elements than the threads of the largest grid take at once", [](const Bench& bench) -> Results {
    return {{"y", affine(broadcast_to(bench.normal({4297}), {2003, 4297}), 2)}};
  });
  cases.add("more elements than the threads of the largest grid of a broadcast", [](const Bench& bench) -> Results {
    return {{"y", broadcast_to(bench.normal({2003, 1}), {2003, 2099})}};
  });
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{
           {{}, {5}}, {{1}, {0}}, {{3, 1}, {3, 131}}, {{131}, {3, 131}}, {{3, 1, 2, 1}, {3, 5, 2, 7}}})
    cases.add(
        label("broadcast_to", to) + " from " + to_string(from),
        [from = from, to = to](const Bench& bench) -> Results {
          return {{"y", broadcast_to(bench.normal(from), to)}};
        },
        true);
  cases.add("arithmetic with gradients", [](const Bench& bench) {
    const Variable a = bench.variable(bench.normal({5, 13})), b = bench.variable(bench.uniform({5, 13}, 0.5, 2, 2));
    return with_gradients(bench, 2 * (a / b) + a * b - gelu(a) + 0.5, {{"a", a}, {"b", b}});
  });
  for (const DType from : {DType::float32, DType::bfloat16, DType::int32, DType::int64, DType::uint64, DType::uint8,
                           DType::boolean, DType::float64})
    for (const int64_t n : {0, 1, 1031})
      cases.add(
          label(std::string("cast of ").append(name(from)).c_str(), {n}),
          [=](const Bench& bench) -> Results {
            const Tensor x = bench.integers({n}, 0, 200).to(Device::cpu).cast(from).to(bench.device);
            Results results;
            for (const DType to : {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::int64,
                                   DType::uint64, DType::uint8, DType::boolean})
              results.push_back({concat("as ", name(to)), x.cast(to)});
            return results;
          },
          true);
}

#endif
