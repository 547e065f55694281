#include <cmath>

#include "tests/ops/operation.h"

namespace {

// p, and a draw of a batch that has `first` examples before these.
struct Drawn {
  double p;
  int64_t first = 0;

  Draw draw() const {
    Generator generator(7);
    generator.set_step(4);
    generator.set_first_example(first);
    return generator.draw(3, Purpose::test);
  }
};

// dropout and dropout_add of {x, residual}.
Case& add(Operation& op, const Drawn& d, const Shape& shape) {
  Case& test = op.add(concat(shape, " p = ", d.p, " from example ", d.first), {normal(shape), normal(shape, 2)});
  test.forward = [d](const Variables& t) {
    return Variables{dropout(t[0], d.p, d.draw()), dropout_add(t[0], d.p, d.draw(), t[1])};
  };
  test.reference = [d](const Tensors& t) {
    const Shape& of = t[0].shape();
    const uint64_t before = of.rank() == 0 ? 0 : uint64_t(d.first * of.without(0).elements());
    const uint64_t key = reference_key(d.draw());
    std::vector<double> y = as_double(t[0]), sum = as_double(t[1]);
    for (size_t i = 0; i < y.size(); ++i) {
      const double factor = dropout_factor(d.p, key, before + i);
      y[i] = factor > 0 ? y[i] * factor : 0;
      sum[i] += y[i];
    }
    return Tensors{from_doubles(y, of), from_doubles(sum, of)};
  };
  return test;
}

}  // namespace

OPERATION("dropout") {
  op.takes = {{"x", "*R"}, {"the residual", "*R"}};
  op.gradients_round_once = false;
  for (const double p : {0.3, 0.0, 0.5, 1.0})
    for (const Shape& shape : {Shape{3}, Shape{}, Shape{0, 3}, Shape{4}, Shape{2, 3, 7}, Shape{6, 5}, Shape{1031},
                               Shape{2, 4100}, Shape{50001}})
      for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{6}, (int64_t{1} << 35) + 3})
        add(op, {p, first}, shape);
  // More elements than the threads of the largest grid take at once.
  add(op, {0.25}, {(1 << 22) + 4099}).gradient = false;
}

TEST_CASE("softmax and dropout keep no tensor but a result for backward", "[dropout]") {
  for (const bool of_softmax : {true, false}) {
    INFO((of_softmax ? "softmax" : "dropout"));
    const Variable leaf(Tensor::zeros({1000, 100}), true);
    const int64_t before = memory(Device::cpu).live;
    const Variable y = of_softmax ? softmax(leaf + leaf) : dropout(leaf + leaf, 0.5, Drawn{0.5}.draw());
    const double tensors = double(memory(Device::cpu).live - before) / (1000 * 100 * sizeof(float));
    CHECK(std::round(tensors) == 1);  // y
  }
}

TEST_CASE("dropout refuses what it cannot compute", "[dropout]") {
  const Tensor x({4});
  const Draw draw = Drawn{0.5}.draw();
  CHECK(dropout(Tensor({0, 3}), 0.5, draw).shape() == Shape{0, 3});
  CHECK_ERROR(dropout(x, -0.1, draw), "dropout: expected a probability, got -0.1");
  CHECK_ERROR(dropout(x, 1.1, draw), "dropout: expected a probability, got 1.1");
  CHECK_ERROR(dropout(x, NAN, draw), "dropout: expected a probability, got nan");
  CHECK_NEEDS_CUDA(dropout(elsewhere({0}), 0.5, {}), "dropout");
}
