#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "tests/ops/operation.h"

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

// ---- functions of one element
using Function = Variable (*)(const Variable&);
using Formula = double (*)(double);

// Operands lie in [low, high].
void table(Operation& op, Function f, Formula formula, double low = -3, double high = 3) {
  op.takes = {{"x", "*R"}};
  op.make = [=](const Shape& shape) { return Tensors{uniform(shape, low, high)}; };
  op.forward = [=](const Variables& t) { return Variables{f(t[0])}; };
  op.reference = [=](const Tensors& t) {
    std::vector<double> y = as_double(t[0]);
    for (double& value : y) value = formula(value);
    return Tensors{from_doubles(y, t[0].shape())};
  };
  op.backward_reads = {0};
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{0, 3}, Shape{4099}, Shape{3, 13337}}) op.add(shape);
  for (const double edge : {-inf, -100.0, -50.0, -0.0, 0.0, 1e-3, 50.0, 100.0, inf, double(NAN)}) {
    const double y = formula(edge);
    const bool too_large = std::isfinite(y) && y > std::numeric_limits<float>::max();  // for float32, as e^100 is
    if (!too_large) op.add(concat("of ", edge), {Tensor::full({1}, edge, DType::float64)}).gradient = false;
  }
}

double logistic_formula(double x) { return 1 / (1 + std::exp(-x)); }

// ---- functions of two elements
using Function2 = Variable (*)(const Variable&, const Variable&);
using Formula2 = double (*)(double, double);

const std::pair<Shape, Shape> broadcasts[] = {
    {{}, {}},
    {{7}, {}},
    {{1031}, {1031}},
    {{67, 1}, {1, 13}},
    {{3, 5}, {3, 1}},
    {{3, 1}, {5}},
    {{2, 3, 4}, {1, 3, 1}},
    {{2, 3, 4}, {2, 1, 4}},
    {{2, 1, 4}, {3, 1}},
    {{2, 3, 4, 5}, {3, 1, 5}},
    {{2, 3, 4, 5}, {3, 1, 1}},
    {{3, 1, 5, 1, 2}, {4, 1, 7, 1}},
    {{1, 2, 1, 2, 1, 2}, {2, 1, 2, 1, 2, 1}},
    {{2, 0, 3}, {1, 3}},
    {{20000}, {1}},       // more than a thread's share
    {{300, 100}, {100}},  // in rows
    {{3, 9000}, {3, 1}},
};

// `sums`: also with the gradients of broadcast operands. In bfloat16 they are sums of rounded numbers, which may cancel
// each other.
void table(Operation& op, Function2 f, Formula2 formula, double low, double high, bool sums = true) {
  op.takes = {{"the first operand", "*A"}, {"the second operand", "*B"}};
  op.make = [=](const Shape& shape) { return Tensors{uniform(shape, low, high), uniform(shape, 1, 2, 2)}; };
  op.forward = [=](const Variables& t) { return Variables{f(t[0], t[1])}; };
  op.reference = [=](const Tensors& t) {
    const Shape shape = broadcast(t[0].shape(), t[1].shape(), "reference");
    std::vector<double> y = broadcasted(t[0], shape);
    const std::vector<double> b = broadcasted(t[1], shape);
    for (size_t i = 0; i < y.size(); ++i) y[i] = formula(y[i], b[i]);
    return Tensors{from_doubles(y, shape)};
  };
  op.backward_reads = {0, 1};
  op.gradients_round_once = false;  // gradients of broadcast operands are sums of rounded numbers
  for (const auto& [a, b] : broadcasts)
    for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}})
      op.add(concat(x, " and ", y), {uniform(x, low, high), uniform(y, 1, 2, 2)}).gradient =
          x == y || (sums && a != Shape{20000});
  for (const double a : {-inf, 0.0, inf, double(NAN)})
    for (const double b : {-inf, -2.0, 0.0, inf, double(NAN)})
      op.add(concat("of ", a, " and ", b), {Tensor::full({1}, a, DType::float64), Tensor::full({1}, b, DType::float64)})
          .gradient = false;
}

}  // namespace

OPERATION("exp") { table(op, exp, std::exp); }
OPERATION("log") { table(op, log, std::log, 0.2, 5); }
OPERATION("sqrt") { table(op, sqrt, std::sqrt, 0.2, 5); }
OPERATION("square") {
  table(op, square, [](double x) { return x * x; });
}
OPERATION("abs") { table(op, abs, std::fabs, -1, 3); }
OPERATION("reciprocal") {
  table(
      op, [](const Variable& x) { return 1 / x; }, [](double x) { return 1 / x; }, 0.5, 2);
}
OPERATION("rsqrt_or_zero") {
  table(
      op, rsqrt_or_zero, [](double x) { return x == 0 ? 0 : 1 / std::sqrt(x); }, 0.2, 5);
}
OPERATION("tanh") { table(op, tanh, std::tanh); }
OPERATION("sigmoid") { table(op, sigmoid, logistic_formula); }
OPERATION("relu") {
  table(op, relu, [](double x) { return x < 0 ? 0 : x; });
}
OPERATION("gelu") {
  table(op, gelu, [](double x) { return x == -inf ? 0 : x * std::erfc(-x / std::sqrt(2.0)) / 2; });
}
OPERATION("silu") {
  table(op, silu, [](double x) { return x == -inf ? 0 : x * logistic_formula(x); });
}
OPERATION("elu_plus_one") {
  table(op, elu_plus_one, [](double x) { return x > 0 ? x + 1 : std::exp(x); });
}
OPERATION("softplus") {
  table(op, softplus, [](double x) { return x > 50 ? x : std::log1p(std::exp(x)); });
}
OPERATION("with a number") {
  op.make = [](const Shape& shape) { return Tensors{uniform(shape, 1, 3)}; };
  op.forward = [](const Variables& t) {
    const Variable& x = t[0];
    return Variables{2.0 * x, x * 3.0, x / 4.0, x + 5.0, 6.0 + x, x - 0.5, 0.5 - x, -x};
  };
  op.reference = [](const Tensors& t) {
    const double scales[] = {2, 3, 0.25, 1, 1, 1, -1, -1}, shifts[] = {0, 0, 0, 5, 6, -0.5, 0.5, 0};
    Tensors results;
    for (size_t i = 0; i < 8; ++i) {
      std::vector<double> y = as_double(t[0]);
      for (double& value : y) value = scales[i] * value + shifts[i];
      results.push_back(from_doubles(y, t[0].shape()));
    }
    return results;
  };
  op.gradients_round_once = false;  // a sum of rounded numbers
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1031}}) op.add(shape);
  op.refuses({Tensor({2, 3}, DType::int32)}, "affine: 0.25 x + 0 for int32 x, expected whole numbers");
  op.refuses({Tensor({2, 3}, DType::boolean)}, "affine: x must be floating or int32, got bool");
  CHECK_ERROR(affine(Tensor({1}, DType::int32), 1, 3e9),
              "affine: 1 x + 3e+09 for int32 x, expected whole numbers of int32");
}

// Sums of these numbers need more digits than float32 has.
static void of_int32(Operation& op) {
  op.takes[0].kind = Taken::number;
  op.add("of int32", {integers({7, 1}, (1 << 24) - 9, (1 << 24) + 9), integers({9}, -50, 50, 2)}).gradient = false;
}

OPERATION("add") {
  table(
      op, operator+, [](double a, double b) { return a + b; }, -2, 2);
  of_int32(op);
  op.backward_reads = {};
  op.refuses({Tensor({2, 3}), Tensor({2, 2})},
             "add: shapes [2, 3] and [2, 2] do not broadcast: sizes 3 and 2 of axis 1 differ and neither is 1");
}
OPERATION("subtract") {
  table(
      op, operator-, [](double a, double b) { return a - b; }, -2, 2);
  of_int32(op);
  op.backward_reads = {};
}
OPERATION("multiply") {
  table(
      op, operator*, [](double a, double b) { return a * b; }, -2, 2);
  of_int32(op);
}
OPERATION("divide") {
  table(
      op, operator/, [](double a, double b) { return a / b; }, -2, 2);
}
OPERATION("divide_or_zero") {
  table(
      op, divide_or_zero, [](double a, double b) { return b == 0 ? 0 : a / b; }, -2, 2);
}
OPERATION("maximum") {
  table(
      op, maximum, [](double a, double b) { return std::isnan(a) || a >= b ? a : b; }, -2, 2);
  of_int32(op);
}
OPERATION("pow") { table(op, pow, std::pow, 0.5, 2, false); }

OPERATION("where") {
  op.takes = {{"the first operand", "*A", Taken::number}, {"the second operand", "*B"}, {"the condition", "*C"}};
  op.make = [](const Shape& shape) {
    return Tensors{normal(shape, 2), normal(shape, 3), integers(shape, 0, 1).cast(DType::boolean)};
  };
  op.forward = [](const Variables& t) { return Variables{where(t[2].value(), t[0], t[1])}; };
  op.reference = [](const Tensors& t) {
    const Shape shape = broadcast(t[0].shape(), broadcast(t[1].shape(), t[2].shape(), "reference"), "reference");
    const std::vector<double> condition = broadcasted(t[2], shape), a = broadcasted(t[0], shape);
    std::vector<double> y = broadcasted(t[1], shape);
    for (size_t i = 0; i < y.size(); ++i) y[i] = condition[i] ? a[i] : y[i];
    return Tensors{from_doubles(y, shape)};
  };
  op.backward_reads = {2};
  op.gradients_round_once = false;  // gradients of broadcast operands are sums of rounded numbers
  for (const auto& [condition, a, b] : {std::tuple<Shape, Shape, Shape>{{7}, {}, {7}},
                                        {{3, 1, 5}, {3, 4, 1}, {}},
                                        {{5}, {3, 1}, {2, 1, 1}},
                                        {{2, 300, 1}, {2, 300, 40}, {}},
                                        {{2, 1, 1, 7}, {1, 3, 5, 7}, {2, 3, 5, 1}}})
    op.add(concat(condition, ' ', a, ' ', b),
           {normal(a, 2), normal(b, 3), integers(condition, 0, 1).cast(DType::boolean)});
  op.add("of int32",
         {integers({9}, 1 << 24, (1 << 24) + 9), integers({}, -1, -1), integers({7, 1}, 0, 1).cast(DType::boolean)})
      .gradient = false;
  op.add("what is not chosen may be NaN",
         {with(normal({2}), {{1, NAN}}), with(normal({2}), {{0, NAN}}), Tensor::from<bool>({true, false}, {2})});
}

OPERATION("compare") {
  op.make = [](const Shape& shape) {
    return Tensors{integers(shape, -2, 2).cast(DType::float64), integers(shape, -2, 2, 2).cast(DType::float64)};
  };
  op.forward = [](const Variables& t) {
    Variables results;
    for (const Compare c : {Compare::less, Compare::less_equal, Compare::equal})
      results.emplace_back(compare(c, t[0].value(), t[1].value()));
    return results;
  };
  op.reference = [](const Tensors& t) {
    const Shape shape = broadcast(t[0].shape(), t[1].shape(), "reference");
    const std::vector<double> a = broadcasted(t[0], shape), b = broadcasted(t[1], shape);
    std::vector<double> less, less_equal, equal;
    for (size_t i = 0; i < a.size(); ++i) {
      less.push_back(a[i] < b[i]);
      less_equal.push_back(a[i] <= b[i]);
      equal.push_back(a[i] == b[i]);
    }
    return Tensors{from_doubles(less, shape), from_doubles(less_equal, shape), from_doubles(equal, shape)};
  };
  for (const Shape& shape : {Shape{}, Shape{40001}, Shape{3, 0}}) op.add(shape);
  op.add("of int32", {integers({7, 1}, 1 << 24, (1 << 24) + 3), integers({9}, 1 << 24, (1 << 24) + 3, 2)});
  op.add("of a column and a row", {normal({7, 1}), normal({9}, 2)});
  op.add("of NaN and infinities",
         {Tensor::from<double>({NAN, inf, -inf, NAN, inf}, {5}), Tensor::from<double>({NAN, inf, inf, 0, NAN}, {5})});
}

TEST_CASE("gradients where functions bend, jump or end", "[elementwise]") {
  const auto slope = [](Unary op, double at) {
    const Variable x(Tensor::full({}, at, DType::float64), true);
    backward(unary(op, x));
    return x.grad().item();
  };
  CHECK(slope(Unary::relu, 0) == 0);
  CHECK(slope(Unary::abs, 0) == 0);
  CHECK(slope(Unary::abs, -2) == -1);
  CHECK(slope(Unary::gelu, 50) == 1);
  CHECK(slope(Unary::gelu, -50) == 0);
  CHECK(slope(Unary::rsqrt_or_zero, 0) == 0);
  CHECK(slope(Unary::softplus, 1000) == 1);  // e^x / (1 + e^x) would be NaN
  // Far from 0, where the tables take no gradients: against central differences.
  for (const Unary op :
       {Unary::tanh, Unary::sigmoid, Unary::relu, Unary::gelu, Unary::silu, Unary::elu_plus_one, Unary::softplus})
    for (const double at : {-12.0, -5.0, 5.0, 12.0}) {
      const auto value = [&](double x) { return unary(op, Tensor::full({}, x, DType::float64)).value().item(); };
      INFO("the derivative of " << name(op) << " at " << at);
      CHECK(std::abs(slope(op, at) - (value(at + 1e-4) - value(at - 1e-4)) / 2e-4) < 1e-7);
    }
  const auto slopes = [](Binary op, double a, double b) {
    const Variable x(Tensor::full({}, a), true), y(Tensor::full({}, b), true);
    backward(binary(op, x, y));
    return std::pair{x.grad().item(), y.grad().item()};
  };
  CHECK(slopes(Binary::maximum, 2, 2) == std::pair{1.0, 0.0});
  CHECK(slopes(Binary::maximum, 1, 2) == std::pair{0.0, 1.0});
  CHECK(slopes(Binary::maximum, NAN, 2) == std::pair{1.0, 0.0});
  CHECK(slopes(Binary::divide_or_zero, 3, 0) == std::pair{0.0, 0.0});
  CHECK(slopes(Binary::pow, 0, 0) == std::pair{0.0, 0.0});
  CHECK(slopes(Binary::pow, 0, 2) == std::pair{0.0, 0.0});
  CHECK(slopes(Binary::pow, -2, 3).first == 12);
  CHECK(slopes(Binary::add, 2, 3) == std::pair{1.0, 1.0});
  CHECK(slopes(Binary::subtract, 2, 3) == std::pair{1.0, -1.0});
}

TEST_CASE("softplus of numbers far below 0 is e^x in float32 not 0", "[elementwise]") {
  for (const double x : {-15.0, -20.0, -80.0})
    CHECK(std::abs(softplus(Tensor::full({}, x, DType::float32)).value().item() / std::exp(x) - 1) < 1e-5);
}

TEST_CASE("a power by a number", "[elementwise][grad]") {
  CHECK_GRADIENT([](const auto& x) { return pow(x[0], 3); }, random_tensor({5}));
  CHECK(pow(Variable(Tensor::full({1}, -2)), 3).value().item() == -8);
}

TEST_CASE("accumulate adds in place", "[elementwise]") {
  for (DType dtype : {DType::float32, DType::float64})
    for (const Shape& shape : row_shapes) {
      const Tensor x = random_tensor(shape, dtype, 1);
      Tensor y = random_tensor(shape, dtype, 2);
      auto expected = as_double(x), sum = as_double(y);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += expected[i];
      accumulate(y, x);
      CHECK(difference(y, sum) <= tolerance_of(dtype));
    }
  Tensor y({3, 2});
  CHECK_ERROR(accumulate(y, Tensor({2, 3})), "accumulate: expected x of shape [3, 2], got [2, 3]");
}

TEST_CASE("elementwise functions of bfloat16 are refused on the CPU", "[elementwise]") {
  CHECK_ERROR(unary(Unary::exp, Tensor({2}, DType::bfloat16)), "exp: bfloat16 is not computed on cpu");
}

#if CAIRN_HAS_CUDA

TEST_CASE("more elements than the largest grids take at once", "[gpu]") {
  const Tensor row = random_tensor({4297}, DType::float32), column = random_tensor({2003, 1}, DType::float32);
  const auto same = [](auto f) { CHECK(same_bits(f(Device::cuda).to(Device::cpu), f(Device::cpu))); };
  same([&](Device device) { return affine(broadcast_to(row.to(device), {2003, 4297}), 2).value(); });  // 4096 * 256 * 4
  same([&](Device device) { return broadcast_to(column.to(device), {2003, 2099}).value(); });
  same([&](Device device) { return (column.to(device) + row.to(device)).value(); });
}

TEST_CASE("casts on CUDA are those of the CPU", "[gpu]") {
  const DType dtypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::int32,
                          DType::int64,   DType::uint64,  DType::uint8,    DType::boolean};
  for (const DType from : dtypes)
    for (const DType to : dtypes)
      for (const int64_t n : {0, 1, 1031}) {
        INFO(name(from) << " to " << name(to) << ", " << n);
        const Tensor x = integers({n}, 0, 200).cast(from);
        CHECK(same_bits(x.to(Device::cuda).cast(to).to(Device::cpu), x.cast(to)));
      }
}

#endif
