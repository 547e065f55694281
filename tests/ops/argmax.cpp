#include <cmath>

#include "tests/ops/ops_test.h"

namespace {

// Few values, so that ties are frequent; NaN, infinities and both zeros among them.
Tensor operand(const Shape& shape, DType dtype) {
  Tensor x = random_integers(shape, -4, 4, DType::float64);
  double* value = x.mutable_data<double>();
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (value[i] == 4) value[i] = i % 3 ? INFINITY : NAN;
    if (value[i] == -4) value[i] = -INFINITY;
    if (value[i] == 0 && i % 2) value[i] = -0.0;  // equal to 0
  }
  return x.cast(dtype);
}

}  // namespace

TEST_CASE("argmax is the first column of the largest, a NaN the largest of all", "[argmax]") {
  const Tensor x = Tensor::from<float>({1, 3, 3, NAN, 5, NAN, -INFINITY, -INFINITY, -INFINITY, 0, -0.0f, NAN}, {4, 3});
  CHECK(argmax(x).to_vector<int32_t>() == std::vector<int32_t>{1, 0, 0, 2});
  for (const Shape& shape : odd_shapes())
    for (const DType dtype : {DType::float32, DType::float64}) {
      if (shape[-1] == 0) continue;
      INFO(shape << ' ' << name(dtype));
      const Tensor row = operand(shape, dtype);
      const auto values = as_double(row);
      std::vector<int32_t> expected;
      for (int64_t first = 0; first < row.elements(); first += shape[-1]) {
        int64_t best = 0;
        for (int64_t c = 1; c < shape[-1]; ++c) {
          const double a = values[size_t(first + c)], b = values[size_t(first + best)];
          if (!std::isnan(b) && (std::isnan(a) || a > b)) best = c;
        }
        expected.push_back(int32_t(best));
      }
      const Tensor columns = argmax(row);
      CHECK(columns.shape() == shape.without(-1));
      CHECK(columns.to_vector<int32_t>() == expected);
    }
}

TEST_CASE("argmax refuses what it cannot compute", "[argmax]") {
  CHECK_ERROR(argmax(Tensor()), "argmax: x was never given a value");
  CHECK_ERROR(argmax(Tensor(Shape{})), "argmax: expected x of shape [..., C], got []");
  CHECK_ERROR(argmax(Tensor({2, 0})), "argmax: 0 columns in [2, 0], expected 1 to 2147483647");
  CHECK_ERROR(argmax(Tensor({0, int64_t{1} << 31})),
              "argmax: 2147483648 columns in [0, 2147483648], expected 1 to 2147483647");
  CHECK_ERROR(argmax(Tensor({2, 3}).cast(DType::bfloat16)), "argmax: bfloat16 is not computed on cpu");
  CHECK_NEEDS_CUDA(argmax(elsewhere({0, 3})), "argmax");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("argmax") {
  for (const Shape& shape : {Shape{0, 5}, Shape{1, 1}, Shape{1031, 1}, Shape{3, 2}, Shape{5, 31}, Shape{700, 7},
                             Shape{2, 3, 33}, Shape{5, 1000}, Shape{2, 6151}})
    cases.add(
        label("argmax", shape),
        [=](const Bench& bench) -> Results {
          return {{"columns", argmax(bench.normal(shape))},
                  {"columns of ties", argmax(bench.place(operand(shape, DType::float32)))}};
        },
        true);
}

#endif
