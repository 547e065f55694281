#include <cmath>

#include "tests/ops/operation.h"

namespace {

auto forward_with(double epsilon) {
  return [epsilon](const Variables& t) { return Variables{layer_norm(t[0], t[1], wide(t[2]), epsilon)}; };
}
auto reference_with(double epsilon) {
  return [epsilon](const Tensors& t) {
    return Tensors{from_doubles(reference_layer_norm(t[0], t[1], t[2], epsilon)[0], t[0].shape())};
  };
}

}  // namespace

OPERATION("layer_norm") {
  op.takes = {{"x", "*R C"}, {"weight", "C"}, {"bias", "C"}};
  op.make = [](const Shape& shape) {
    return Tensors{uniform(shape, -1, 3), uniform({shape[-1]}, 0.5, 1.5, 2), normal({shape[-1]}, 3)};
  };
  op.forward = forward_with(0.01);
  op.reference = reference_with(0.01);
  op.backward_reads = {0, 1};
  for (const Shape& shape : row_shapes) op.add(shape);
  op.add({301, 5});  // several pieces of 128 rows, which the gradients of weight and bias sum over
  // Long enough that two threads are at it together, and differ if they add to the same sum. For that test alone.
  Case& together = op.add({50'001, 33});
  together.values = together.differences = together.on_cuda = false;
  for (const int64_t cols : {70, 1300})
    op.add(concat("of a peak late in its row ", cols),
           {with_late_peak(cols), uniform({cols}, 0.5, 1.5, 2), normal({cols}, 3)});
  for (const double epsilon : {1e-5, 0.1}) {
    Case& test = op.add(concat("epsilon ", epsilon), op.make({5, 67}));
    test.forward = forward_with(epsilon);
    test.reference = reference_with(epsilon);
  }
  Case& far = op.add("of a mean much larger than the spread",
                     {affine(normal({3, 64}), 1, 4096).value(), normal({64}), normal({64}, 2)});
  far.tolerance = 4096 * 0x1p-23;  // half a unit in the last place of the mean, 4096 * 2^-24, goes into every y
  op.add("NaN stays in its row", {with(normal({3, 4}), {{5, NAN}}), normal({4}), normal({4}, 2)}).gradient = false;
}
