#include <numeric>

#include "tests/ops/operation.h"

namespace {

// Whole numbers that tell each element from the others.
Tensor counted(const Shape& shape, DType dtype) {
  std::vector<double> values(size_t(shape.elements()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from(values, shape).cast(dtype);
}

// The element at these coordinates, in double.
double element(const Tensor& x, const std::vector<int64_t>& at) {
  int64_t place = 0;
  for (int axis = 0; axis < x.rank(); ++axis) place = place * x.size(axis) + at[size_t(axis)];
  return x.data<double>()[place];
}

// A tensor of this shape from f of the coordinates.
template <class F>
Tensor tensor_of(const Shape& shape, F f) {
  std::vector<double> values;
  std::vector<int64_t> at(size_t(shape.rank()));
  for (int64_t i = 0; i < shape.elements(); ++i) {
    int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; rest /= shape[axis--]) at[size_t(axis)] = rest % shape[axis];
    values.push_back(f(at));
  }
  return Tensor::from(values, shape);
}

}  // namespace

OPERATION("permute") {
  for (const auto& [shape, axes] : std::vector<std::pair<Shape, Axes>>{{{}, {}},
                                                                       {{5}, {0}},
                                                                       {{3, 5}, {1, 0}},
                                                                       {{3, 0}, {1, 0}},
                                                                       {{2, 3, 4, 5}, {0, 2, 1, 3}},
                                                                       {{2, 3, 4, 5}, {-1, 1, 0, 2}},
                                                                       {{2, 1, 3, 1, 2, 3}, {5, 4, 3, 2, 1, 0}},
                                                                       {{300, 90, 2}, {1, 0, 2}},
                                                                       {{70, 900}, {1, 0}}}) {
    Case& test = op.add(concat(shape, " to ", axes.size() ? axes[0] : 0), {normal(shape)});
    test.forward = [axes = axes](const Variables& t) { return Variables{permute(t[0], axes)}; };
    test.reference = [axes = axes](const Tensors& t) {
      Shape to;
      for (const int axis : axes) to.push_back(t[0].size(axis));
      return Tensors{tensor_of(to, [&](const std::vector<int64_t>& at) {
        std::vector<int64_t> from(at.size());
        for (size_t i = 0; i < at.size(); ++i) from[size_t(t[0].shape().normalize(axes[i]))] = at[i];
        return element(t[0], from);
      })};
    };
  }
  op.forward = [](const Variables& t) { return Variables{permute(t[0], {0, 1, 1})}; };
  op.refuses({Tensor({2, 3, 4})}, "permute: axis 1 is given twice");
  op.refuses({Tensor({2, 3})}, "permute: 3 axes for [2, 3]");
}

OPERATION("slice") {
  struct Cut {
    Shape shape;
    int axis;
    int64_t begin, end;
  };
  for (const Cut& cut : {Cut{{5}, 0, 1, 3}, Cut{{5}, 0, 2, 2}, Cut{{0, 3}, 1, 1, 2}, Cut{{2, 7, 3}, 1, 2, 6},
                         Cut{{2, 7, 3}, -1, 2, 3}, Cut{{2, 7, 3}, 0, 0, 2}, Cut{{40, 9, 301}, -1, 100, 300}}) {
    Case& test = op.add(concat(cut.shape, " axis ", cut.axis), {normal(cut.shape)});
    test.forward = [cut](const Variables& t) { return Variables{slice(t[0], cut.axis, cut.begin, cut.end)}; };
    test.reference = [cut](const Tensors& t) {
      const Shape to = cut.shape.with(cut.axis, cut.end - cut.begin);
      return Tensors{tensor_of(to, [&](std::vector<int64_t> at) {
        at[size_t(to.normalize(cut.axis))] += cut.begin;
        return element(t[0], at);
      })};
    };
  }
  op.forward = [](const Variables& t) { return Variables{slice(t[0], 1, 2, 4)}; };
  op.refuses({Tensor({2, 3})}, "slice: 2 to 4 of axis 1 of [2, 3]");
  op.refuses({Tensor({5})}, "shape: axis 1 out of range for [5]");
}

OPERATION("concat") {
  struct Parts {
    std::vector<Shape> shapes;
    int axis;
  };
  for (const Parts& parts :
       {Parts{{{3}}, 0}, Parts{{{3}, {0}, {2}}, 0}, Parts{{{2, 3}, {2, 1}, {2, 4}}, 1}, Parts{{{2, 3}, {5, 3}}, -2},
        Parts{{{2, 4, 3}, {2, 5, 3}}, 1}, Parts{{{0, 2}, {0, 3}}, 1}, Parts{{{300, 60}, {300, 61}}, -1}}) {
    Tensors operands;
    for (const Shape& shape : parts.shapes) operands.push_back(normal(shape, operands.size() + 1));
    Case& test = op.add(concat(parts.shapes.size(), " of ", parts.shapes[0], " axis ", parts.axis), operands);
    test.forward = [axis = parts.axis](const Variables& t) { return Variables{concat(t, axis)}; };
    test.reference = [axis = parts.axis](const Tensors& t) {
      int64_t size = 0;
      for (const Tensor& part : t) size += part.size(axis);
      return Tensors{tensor_of(t[0].shape().with(axis, size), [&](std::vector<int64_t> at) {
        int64_t& along = at[size_t(t[0].shape().normalize(axis))];
        size_t part = 0;
        for (; along >= t[part].size(axis); ++part) along -= t[part].size(axis);
        return element(t[part], at);
      })};
    };
  }
  op.forward = [](const Variables& t) { return Variables{concat(t, 0)}; };
  op.refuses({}, "concat: no tensors");
  op.refuses({Tensor({2, 3}), Tensor({2, 4})}, "concat: [2, 4] does not join [2, 3] along axis 0");
  op.refuses({Tensor({2}), Tensor({2}, DType::float64)}, "concat: expected a part to be float32, got float64");
}

OPERATION("stack") {
  op.make = [](const Shape& shape) { return Tensors{normal(shape), normal(shape, 2), normal(shape, 3)}; };
  op.forward = [](const Variables& t) { return Variables{stack(t, -1)}; };
  op.reference = [](const Tensors& t) {
    return Tensors{tensor_of(appended(t[0].shape(), int64_t(t.size())), [&](std::vector<int64_t> at) {
      const size_t part = size_t(at.back());
      at.pop_back();
      return element(t[part], at);
    })};
  };
  op.add(Shape{});
  op.add("as rows", {normal({3}), normal({3}, 2)}).forward = [](const Variables& t) {
    return Variables{permute(stack(t, 0), {1, 0})};
  };
  op.refuses({Tensor({2, 3}), Tensor({3, 2})}, "concat: [3, 2, 1] does not join [2, 3, 1] along axis 2");
}

OPERATION("broadcast_to") {
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{{{}, {5}},
                                                                     {{1}, {0}},
                                                                     {{2, 1}, {2, 3}},
                                                                     {{2, 1}, {2, 2, 1}},
                                                                     {{3, 1}, {3, 131}},
                                                                     {{131}, {3, 131}},
                                                                     {{3, 1, 2, 1}, {3, 5, 2, 7}},
                                                                     {{1, 300}, {200, 300}}}) {
    Case& test = op.add(concat(from, " to ", to), {normal(from)});
    test.forward = [to = to](const Variables& t) { return Variables{broadcast_to(t[0], to)}; };
    test.reference = [to = to](const Tensors& t) { return Tensors{from_doubles(broadcasted(t[0], to), to)}; };
  }
  op.gradients_round_once = false;  // sums of rounded numbers
  op.forward = [](const Variables& t) { return Variables{broadcast_to(t[0], {3})}; };
  op.refuses({Tensor({2, 3})}, "broadcast_to: [2, 3] does not broadcast to [3]");
  op.refuses({Tensor({2})}, "broadcast_to: shapes [2] and [3] do not broadcast");
}

TEST_CASE("tensors of every type are put in order alike", "[strided_copy]") {
  const auto reordered = [](const Tensor& x) { return permute(slice(concat({x, x}, 1), 1, 3, 8), {2, 1, 0}).value(); };
  const Tensor expected = reordered(counted({3, 4, 5}, DType::float64));
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::int64, DType::uint64,
                            DType::uint8, DType::boolean})
    for (const Device device : every_device()) {
      INFO(name(dtype) << " on " << name(device));
      CHECK(same_bits(reordered(counted({3, 4, 5}, dtype).to(device)).to(Device::cpu), expected.cast(dtype)));
    }
}
