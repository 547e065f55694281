#include <cmath>

#include "tests/ops/operation.h"

OPERATION("cross_entropy") {
  op.takes = {{"logits", "*R C"}, {"targets", "*R"}};
  op.make = [](const Shape& shape) {
    return Tensors{affine(normal(shape), 3).value(), integers(shape.without(-1), -2, int(shape[-1]) - 1)};
  };
  op.forward = [](const Variables& t) { return Variables{cross_entropy(t[0], t[1].value())}; };
  op.reference = [](const Tensors& t) { return Tensors{from_doubles({reference_cross_entropy(t[0], t[1])}, {})}; };
  op.backward_reads = {0, 1};
  op.draws_empty_rows = false;
  op.add({4, 3});  // the first shape: the tests change its tensors
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add({3001, 17});
  op.add("of large logits",
         {from_doubles({1000, 0, -1000, 1000, 1000, 0}, {2, 3}), int32s({2, 0})});  // nothing overflows
  op.add("where no row counts", {normal({2, 3}), int32s({-1, -100})});
  op.add("NaN in a row that does not count", {with(normal({3, 4}), {{4, NAN}, {7, NAN}}), int32s({1, -1, 3})});
  for (const int64_t cols : {5, 70, 1300}) {
    Tensor x = Tensor::full({5, cols}, 0.5, DType::float64);
    for (int64_t c = 0; c < cols; ++c) {
      if (c > 0) x = with(x, {{c, -INFINITY}});
      x = with(x, {{cols + c, -INFINITY}});
    }
    x = with(x, {{3 * cols - 1, NAN}, {3 * cols, INFINITY}});
    op.add(concat("of a peak late in its row ", cols), {with_late_peak(cols), int32s({0, 3, 4})});
    op.add(concat("of masked columns ", cols), {x, int32s({0, -1, -1, -1, 3})});
    op.add(concat("of NaN and infinity ", cols), {x, int32s({1, 2, 3, 0, 3})}).differences = false;
  }
  op.refuses({Tensor({2, 3}), int32s({0, 3})}, "cross_entropy: target 3 at position 1 is no class");
  op.refuses({Tensor({2, 0}), int32s({0, 1})}, "cross_entropy: target 0 at position 0 is no class");
}

OPERATION("binary_cross_entropy") {
  op.takes = {{"the first operand", "*A"}, {"the second operand", "*B"}};
  op.forward = [](const Variables& t) { return Variables{binary_cross_entropy(t[0], t[1])}; };
  op.reference = [](const Tensors& t) {
    const std::vector<double> x = as_double(t[0]), target = as_double(t[1]);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      sum += target[i] * std::log1p(std::exp(-x[i])) + (1 - target[i]) * std::log1p(std::exp(x[i]));
    return Tensors{from_doubles({sum / double(x.size())}, {})};
  };
  op.backward_reads = {0, 1};
  op.rounds_once = op.gradients_round_once = false;  // a mean of rounded numbers
  for (const Shape& shape : {Shape{}, Shape{3, 5}, Shape{40001}})
    op.add(concat(shape), {normal(shape), uniform(shape, 0, 1, 2)});
  op.add("far from 0", {Tensor::from<double>({-100, 100, 500, -500}, {4}), Tensor::from<double>({0, 1, 0, 1}, {4})});
}

OPERATION("mean_squared_error") {
  op.forward = [](const Variables& t) { return Variables{mean_squared_error(t[0], t[1])}; };
  op.reference = [](const Tensors& t) {
    const std::vector<double> x = as_double(t[0]), target = as_double(t[1]);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - target[i]) * (x[i] - target[i]);
    return Tensors{from_doubles({sum / double(x.size())}, {})};
  };
  op.rounds_once = op.gradients_round_once = false;  // a mean of rounded numbers
  for (const Shape& shape : {Shape{}, Shape{3, 5}, Shape{40001}})
    op.add(concat(shape), {normal(shape), normal(shape, 2)});
}
