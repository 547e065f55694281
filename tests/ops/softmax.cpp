#include "core/kernels/softmax.h"

#include <cmath>

#include "tests/ops/operation.h"

OPERATION("softmax") {
  op.takes = {{"x", "*R C"}};
  op.make = [](const Shape& shape) { return Tensors{normal(shape)}; };
  op.forward = [](const Variables& t) { return Variables{softmax(t[0])}; };
  op.reference = [](const Tensors& t) {
    return Tensors{from_doubles(reference_softmax(as_double(t[0]), t[0].size(-1)), t[0].shape())};
  };
  op.backward_reads_results = true;
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add({int64_t{1} << 60, 0});  // needs no time
  for (const int64_t cols : {5, 70, 1300}) {
    const double inf = INFINITY;
    op.add(concat("with masked elements ", cols), {with(normal({2, cols}), {{0, -inf}, {3, -inf}, {cols + 1, -inf}})});
    op.add(concat("of a masked row ", cols), {affine(uniform({2, cols}, 0, 1), 0, -inf).value()});
    for (const double bad : {double(NAN), inf})
      op.add(concat(bad, " stays in its row ", cols), {with(normal({3, cols}), {{cols + 2, bad}})}).gradient = false;
    op.add(concat("of a peak late in its row ", cols), {with_late_peak(cols)});
    op.add(concat("of large numbers ", cols), {affine(normal({3, cols}), 1e30).value()});
  }
}

#if CAIRN_HAS_CUDA

TEST_CASE("softmax on CUDA may overwrite its input", "[gpu]") {
  for (const Rows size : {Rows{3, 100}, Rows{3, 1500}}) {
    const Shape shape{size.rows, size.cols};
    Tensor y = random_tensor(shape, DType::float32, 5).to(Device::cuda);
    Tensor dx = random_tensor(shape, DType::float32).to(Device::cuda);
    const Variable x(y.clone(), true), expected = softmax(x);
    backward(expected, dx);
    gpu::softmax_forward<float>({}, size, y.data<float>(), y.mutable_data<float>());
    gpu::softmax_backward<float>({}, size, y.data<float>(), dx.data<float>(), dx.mutable_data<float>());
    CHECK(y.to_vector<float>() == expected.value().to_vector<float>());
    CHECK(dx.to_vector<float>() == x.grad().to_vector<float>());
  }
}

#endif
