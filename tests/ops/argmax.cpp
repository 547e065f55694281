#include <cmath>

#include "tests/ops/operation.h"

OPERATION("argmax") {
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
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add({2, 6151});
  for (const Shape& shape : {Shape{3, 5, 4}, Shape{2, 3, 41, 7}, Shape{0, 2, 3, 4}, Shape{4, 1, 300, 2}}) {
    const int64_t positions = shape[-2];
    Case& test = op.add(concat(shape, " with lengths"), {op.make(shape)[0], integers({shape[0]}, 0, int(positions))});
    test.forward = [](const Variables& t) { return Variables{Variable(argmax(t[0].value(), t[1].value()))}; };
    test.reference = [reference = op.reference, positions](const Tensors& t) {
      Tensor columns = reference(t)[0];
      const auto lengths = t[1].to_vector<int32_t>();
      for (int64_t r = 0; r < columns.elements(); ++r)
        if (r % positions >= lengths[size_t(r * t[0].size(0) / columns.elements())])
          columns.mutable_data<int32_t>()[r] = -1;
      return Tensors{columns};
    };
  }
  op.refuses({Tensor(Shape{})}, "argmax: expected x of shape [..., C], got []");
  op.refuses({Tensor({2, 0})}, "argmax: 0 columns in [2, 0], expected 1 to 2147483647");
  op.refuses({Tensor({0, int64_t{1} << 31})},
             "argmax: 2147483648 columns in [0, 2147483648], expected 1 to 2147483647");
  op.refuses({Tensor({2, 3}).cast(DType::bfloat16)}, "argmax: bfloat16 is not computed on cpu");
}

TEST_CASE("argmax refuses lengths that do not fit", "[argmax]") {
  CHECK_ERROR(argmax(Tensor({2, 3}), int32s({1, 2})), "argmax: expected x of shape [B, ..., N, C] for lengths [2]");
  CHECK_ERROR(argmax(Tensor({2, 3, 4}), int32s({1})), "argmax: expected x of shape [B, ..., N, C] for lengths [1]");
  CHECK_ERROR(argmax(Tensor({2, 3, 4}), int32s({1, 4})), "argmax: lengths[1] is 4, expected 0 to 3");
}

TEST_CASE("an operation on a device that this build lacks says so", "[argmax]") {
  CHECK_NEEDS_CUDA(argmax(elsewhere({0, 3})), "argmax");
}
