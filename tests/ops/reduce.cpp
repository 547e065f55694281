#include <cmath>
#include <tuple>
#include <utility>

#include "tests/ops/operation.h"

namespace {

// Shapes and axes: none, all, neighbors and not, long rows and columns, nothing to reduce.
const std::tuple<Shape, Axes> sizes[] = {{{}, {}},
                                         {{5}, {}},
                                         {{7}, {0}},
                                         {{1025}, {-1}},
                                         {{3, 5}, {0, 1}},
                                         {{0, 3}, {0}},
                                         {{3, 0}, {0}},
                                         {{2, 0, 3}, {-1, 0}},
                                         {{5, 1, 2}, {1}},
                                         {{2, 3, 4, 5}, {1, 2}},
                                         {{2, 3, 4, 5}, {0, 2}},
                                         {{2, 3, 4, 5}, {3, 1}},
                                         {{67, 131}, {0}},
                                         {{67, 131}, {1}},
                                         {{2, 513, 33}, {1}},
                                         {{1537, 2}, {0}},
                                         {{2, 16385, 1}, {1}},
                                         {{3, 52429}, {1}}};

// Where each element of a tensor goes, in a result that keeps the axes with one element.
Shape kept(Shape shape, const Axes& axes) {
  for (const int axis : axes) shape = shape.with(axis, 1);
  return shape;
}
Shape dropped(const Shape& shape, const Axes& axes) {
  Shape result;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    bool stays = true;
    for (const int given : axes) stays = stays && shape.normalize(given) != axis;
    if (stays) result.push_back(shape[axis]);
  }
  return result;
}
// Sums, each divided by n.
Tensor reference_sum(const Tensor& x, const Shape& shape, double n = 1) {
  const std::vector<double> from = as_double(x);
  std::vector<double> result(size_t(shape.elements()));
  each_broadcast(x.shape(), shape, [&](size_t i, size_t place) { result[place] += from[i]; });
  for (double& sum : result) sum /= n;
  return from_doubles(result, shape);
}

}  // namespace

OPERATION("sum") {
  op.takes = {{"x", "*R"}};
  for (const auto& [shape, axes] : sizes)
    for (const bool keep : {false, true}) {
      // Around 0, so that rounding does not add up.
      Case& test = op.add(concat(shape, keep ? " kept" : "", axes.empty() ? "" : concat(" from axis ", axes[0])),
                          {uniform(shape, -0.25, 0.3)});
      test.forward = [axes = axes, keep](const Variables& t) { return Variables{sum(t[0], axes, keep)}; };
      test.reference = [axes = axes, keep](const Tensors& t) {
        const Shape& from = t[0].shape();
        return Tensors{reference_sum(t[0], kept(from, axes)).reshape(keep ? kept(from, axes) : dropped(from, axes))};
      };
    }
  op.rounds_once = false;  // axes that are not neighbors are summed one after another
  op.forward = [](const Variables& t) { return Variables{sum(t[0], {1, -1})}; };
  op.refuses({Tensor({3})}, "shape: axis 1 out of range for [3]");
  op.refuses({Tensor({2, 3})}, "sum: axis -1 is given twice");
}

OPERATION("mean") {
  op.forward = [](const Variables& t) { return Variables{mean(t[0]), mean(t[0], {0}), mean(t[0], {-1, 0}, true)}; };
  op.reference = [](const Tensors& t) {
    const double n = double(t[0].elements()), rows = double(t[0].size(0));
    return Tensors{reference_sum(t[0], {}, n), reference_sum(t[0], {t[0].size(1)}, rows),
                   reference_sum(t[0], {1, 1}, n)};
  };
  op.rounds_once = false;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{70, 1300}}) op.add(concat(shape), {normal(shape)});
  op.add("of nothing", {Tensor({0, 3}, DType::float64)}).gradient = false;
}

OPERATION("max") {
  for (const auto& [shape, axes] : sizes) {
    if (kept(shape, axes).elements() > 0 && shape.elements() == 0) continue;  // of nothing: refused
    for (const bool keep : {false, true}) {
      Case& test = op.add(concat(shape, keep ? " kept" : "", axes.empty() ? "" : concat(" from axis ", axes[0])),
                          {normal(shape)});
      test.forward = [axes = axes, keep](const Variables& t) { return Variables{max(t[0], axes, keep)}; };
      test.reference = [axes = axes, keep](const Tensors& t) {
        const Shape to = kept(t[0].shape(), axes);
        const std::vector<double> from = as_double(t[0]);
        std::vector<double> result(size_t(to.elements()), -INFINITY);
        each_broadcast(t[0].shape(), to,
                       [&](size_t i, size_t place) { result[place] = std::fmax(result[place], from[i]); });
        return Tensors{from_doubles(result, keep ? to : dropped(t[0].shape(), axes))};
      };
    }
  }
  op.forward = [](const Variables& t) { return Variables{max(t[0], {0})}; };
  op.refuses({Tensor({0, 3})}, "argmax: 0 columns in [3, 0], expected 1 to 2147483647");
  op.refuses({Tensor(Shape{})}, "shape: axis 0 out of range for []");
}

TEST_CASE("the first of the largest elements has max's gradient, and a NaN is the largest", "[reduce]") {
  const Variable x(Tensor::from<float>({1, 5, 5, NAN, 7, NAN}, {2, 3}), true);
  const Variable y = max(x, {1});
  CHECK(y.value().to_vector<float>()[0] == 5);
  CHECK(std::isnan(y.value().to_vector<float>()[1]));
  backward(y, Tensor::from<float>({2, 3}, {2}));
  CHECK(x.grad().to_vector<float>() == std::vector<float>{0, 2, 0, 3, 0, 0});
  CHECK_ERROR(max(x, {1, -1}), "max: an axis of [2, 3] is given twice");
}

OPERATION("reshape") {
  op.make = [](const Shape& shape) { return Tensors{normal(shape)}; };
  op.forward = [](const Variables& t) { return Variables{reshape(t[0], {-1}), reshape(t[0], {1, -1, 1})}; };
  op.reference = [](const Tensors& t) {
    return Tensors{from_doubles(as_double(t[0]), {t[0].elements()}),
                   from_doubles(as_double(t[0]), {1, t[0].elements(), 1})};
  };
  for (const Shape& shape : {Shape{}, Shape{2, 3, 4}}) op.add(shape);
}

TEST_CASE("reshape refuses another number of elements", "[reduce]") {
  const Tensor x({2, 3});
  CHECK(x.reshape({3, -1}).shape() == Shape{3, 2});
  CHECK(Tensor({0, 3}).reshape({-1, 3}).shape() == Shape{0, 3});
  CHECK_ERROR(x.reshape({4, -1}), "reshape: [2, 3] has 6 elements, [4, 1] has 4");
  CHECK_ERROR(x.reshape({-1, -1}), "reshape: two sizes of -1");
  CHECK_ERROR(x.reshape({-2, -3}), "shape: negative size -2");
  CHECK_ERROR(x.reshape({5}), "reshape: [2, 3] has 6 elements, [5] has 5");
}

TEST_CASE("sum_to is the transpose of broadcasting", "[reduce]") {
  const Shape big{2, 3, 4, 5};
  const Tensor x = random_tensor(big);
  for (const Shape& small : {Shape{}, Shape{1}, Shape{5}, Shape{4, 5}, Shape{4, 1}, Shape{3, 4, 5}, Shape{3, 1, 1},
                             Shape{1, 4, 1}, Shape{3, 1, 5}, Shape{1, 1, 1, 1}, Shape{2, 1, 1, 1}, Shape{1, 3, 4, 1},
                             Shape{2, 1, 4, 1}, Shape{1, 3, 1, 5}, Shape{2, 3, 1, 5}, Shape{2, 3, 4, 5}}) {
    INFO(small);
    CHECK(difference(sum_to(x, small), reference_sum(x, small)) <= tolerance::float64);
  }
  CHECK(sum_to(Tensor({0, 3}), {3}).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(sum_to(Tensor({3, 0}), {1, 1}).to_vector<float>() == std::vector<float>{0});
  CHECK_ERROR(sum_to(Tensor({2, 3}), {2}), "sum_to: shapes [2, 3] and [2] do not broadcast");
  CHECK_ERROR(sum_to(Tensor({2, 3}), {4, 2, 3}), "sum_to: [4, 2, 3] does not broadcast to [2, 3]");
}

OPERATION("argmax") {
  op.takes = {{"x", "*R C"}};
  // Few values, so that ties are frequent; NaN, infinities and both zeros among them.
  op.make = [](const Shape& shape) {
    Tensor x = integers(shape, -4, 4).cast(DType::float64);
    double* value = x.mutable_data<double>();
    for (int64_t i = 0; i < x.elements(); ++i) {
      if (value[i] == 4) value[i] = i % 3 ? INFINITY : NAN;
      if (value[i] == -4) value[i] = -INFINITY;
      if (value[i] == 0 && i % 2) value[i] = -0.0;  // equal to 0
    }
    return Tensors{x};
  };
  op.forward = [](const Variables& t) { return Variables{Variable(argmax(t[0].value()))}; };
  op.reference = [](const Tensors& t) {
    const auto values = as_double(t[0]);
    const int64_t cols = t[0].size(-1);
    std::vector<int32_t> columns;
    for (int64_t first = 0; first < t[0].elements(); first += cols) {
      int64_t best = 0;
      for (int64_t c = 1; c < cols; ++c) {
        const double a = values[size_t(first + c)], b = values[size_t(first + best)];
        if (!std::isnan(b) && (std::isnan(a) || a > b)) best = c;
      }
      columns.push_back(int32_t(best));
    }
    return Tensors{Tensor::from(columns, t[0].shape().without(-1))};
  };
  op.draws_empty_rows = false;
  for (const int64_t cols : {70, 1300}) op.add(concat("of a peak late in its row ", cols), {with_late_peak(cols)});
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add({2, 6151});
  for (const Shape& shape : {Shape{3, 5, 4}, Shape{2, 3, 41, 7}, Shape{0, 2, 3, 4}, Shape{4, 1, 300, 2}}) op.add(shape);
  op.refuses({Tensor({2, 0})}, "argmax: 0 columns in [2, 0], expected 1 to 2147483647");
  op.refuses({Tensor({0, int64_t{1} << 31})},
             "argmax: 2147483648 columns in [0, 2147483648], expected 1 to 2147483647");
  op.refuses({Tensor({2, 3}).cast(DType::bfloat16)}, "argmax: bfloat16 is not computed on cpu");
}

TEST_CASE("an operation on a device that this build lacks says so", "[argmax]") {
  CHECK_NEEDS_CUDA(argmax(elsewhere({0, 3})), "argmax");
}
