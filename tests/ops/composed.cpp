// Functions made of others (autograd/ops/composed.cpp). The losses are in cross_entropy.cpp.
#include <algorithm>
#include <cmath>

#include "tests/ops/operation.h"

OPERATION("log_softmax") {
  op.make = [](const Shape& shape) { return Tensors{normal(shape)}; };
  op.forward = [](const Variables& t) { return Variables{log_softmax(t[0])}; };
  op.reference = [](const Tensors& t) {
    std::vector<double> y = as_double(t[0]);
    const size_t cols = size_t(t[0].size(-1));
    for (size_t first = 0; first < y.size(); first += cols) {
      const auto row = y.begin() + int64_t(first);
      const double largest = *std::max_element(row, row + int64_t(cols));
      double sum = 0;
      for (size_t c = 0; c < cols; ++c) sum += std::exp(row[int64_t(c)] - largest);
      for (size_t c = 0; c < cols; ++c) row[int64_t(c)] -= largest + std::log(sum);
    }
    return Tensors{from_doubles(y, t[0].shape())};
  };
  op.draws_empty_rows = false;
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add("of large numbers", {affine(normal({2, 70}), 1e4).value()});
  op.add("with masked elements", {with(normal({2, 5}), {{0, -INFINITY}, {7, -INFINITY}})}).gradient = false;
}

OPERATION("l2_normalize") {
  op.make = [](const Shape& shape) { return Tensors{normal(shape)}; };
  op.forward = [](const Variables& t) { return Variables{l2_normalize(t[0])}; };
  op.backward_reads = {0};
  op.reference = [](const Tensors& t) {
    std::vector<double> y = as_double(t[0]);
    const auto cols = size_t(t[0].size(-1));
    for (size_t first = 0; cols && first < y.size(); first += cols) {
      double squares = 0;
      for (size_t c = first; c < first + cols; ++c) squares += y[c] * y[c];
      for (size_t c = first; c < first + cols && squares > 0; ++c) y[c] /= std::sqrt(squares);
    }
    return Tensors{from_doubles(y, t[0].shape())};
  };
  for (const Shape& shape : {Shape{7}, Shape{3, 0}, Shape{2, 3, 5}, Shape{67, 131}, Shape{2, 20011}}) op.add(shape);
  for (const double size : {1e-37, 1e-30, 1e30, 3e38})
    op.add(concat("of squares that are no float, ", size), {Tensor::from<double>({size, -size, 0, 1, 2, 3}, {2, 3})})
        .gradient = false;
}

TEST_CASE("a row of zeros has no length and no gradient, and NaN stays in its row", "[l2_normalize]") {
  const Variable x(Tensor::from<float>({0, 0, 3, -4, 0, -0.0f, NAN, 1, INFINITY, 1}, {5, 2}), true);
  const Variable y = l2_normalize(x);
  backward(y, Tensor::full({5, 2}, 5));
  const auto values = y.value().to_vector<float>(), dx = x.grad().to_vector<float>();
  CHECK(difference(std::vector<float>(values.begin(), values.begin() + 6),
                   std::vector<double>{0, 0, 0.6, -0.8, 0, 0}) <= tolerance::float32);
  CHECK(difference(std::vector<float>(dx.begin(), dx.begin() + 6),
                   std::vector<double>{0, 0, 5 * 0.28 * 0.8, 5 * 0.28 * 0.6, 0, 0}) <= tolerance::float32);
  CHECK((std::isnan(values[6]) && std::isnan(values[8])));
}
