#include "core/kernels/rows.h"

#include <cstdint>

#include "tests/ops/operation.h"

namespace {

// A table of some rows, as many columns as the shape has, and an index for its leading axes, -1 among them.
int64_t rows_for(const Shape& shape) { return 1 + shape.without(-1).elements() % 300; }
Tensor index_for(const Shape& shape) { return integers(shape.without(-1), -1, int(rows_for(shape)) - 1); }

// Shapes of rows, in which packs of elements fit or do not, and of many rows of few.
const Shape sizes[] = {{5, 7},  {0, 4},     {4, 0},    {1, 1},    {33, 8},   {67, 13},    {3, 131},
                       {3, 40}, {130, 260}, {257, 64}, {1031, 4}, {3, 5, 2}, {2003, 131}, {2, 0, 3}};

}  // namespace

OPERATION("gather_rows") {
  op.takes = {{"table", "N C"}, {"index", "*R"}};
  op.make = [](const Shape& shape) { return Tensors{normal({rows_for(shape), shape[-1]}), index_for(shape)}; };
  op.forward = [](const Variables& t) { return Variables{gather_rows(t[0], t[1].value())}; };
  op.reference = [](const Tensors& t) {
    return Tensors{from_doubles(reference_gather(t[0], t[1]), appended(t[1].shape(), t[0].size(-1)))};
  };
  op.backward_reads = {1};
  for (const Shape& shape : sizes) op.add(shape);
  op.add("of an empty table", {normal({0, 3}), int32s({-1, -1})});
  op.add("one row many times", {normal({4, 7}), Tensor::full({5000}, 3, DType::int32)});
  op.add("a row for no axes", {normal({4, 3}), Tensor::full({}, 2, DType::int32)});
  op.refuses({Tensor({0, 3}), int32s({0})}, "gather_rows: index[0] is 0, expected -1 to -1");
  op.refuses({Tensor({4, 3}), int32s({0, 4})}, "gather_rows: index[1] is 4, expected -1 to 3");
  op.refuses({Tensor({4, 3}), int32s({-2})}, "gather_rows: index[0] is -2, expected -1 to 3");
}

OPERATION("gather_columns") {
  op.takes = {{"x", "*R C"}, {"columns", "*R"}};
  op.make = [](const Shape& shape) {
    return Tensors{normal(shape), integers(shape.without(-1), -1, int(shape[-1]) - 1)};
  };
  op.forward = [](const Variables& t) { return Variables{gather_columns(t[0], t[1].value())}; };
  op.reference = [](const Tensors& t) {
    const std::vector<double> x = as_double(t[0]), columns = as_double(t[1]);
    std::vector<double> y;
    for (size_t r = 0; r < columns.size(); ++r)
      y.push_back(columns[r] < 0 ? 0 : x[r * size_t(t[0].size(-1)) + size_t(columns[r])]);
    return Tensors{from_doubles(y, t[1].shape())};
  };
  op.backward_reads = {1};
  for (const Shape& shape : sizes) op.add(shape);
  op.add({70'000, 3});
  op.refuses({Tensor({2, 3}), int32s({0, 3})}, "gather_columns: columns[1] is 3, expected -1 to 2");
}

#if CAIRN_HAS_CUDA

TEST_CASE("scatter_add_rows on CUDA adds what the CPU adds in its order", "[rows][gpu]") {
  // Tables of one, two and many tiles of the sort; many rows with one index, few, and indices outside.
  for (const RowSelection size : {RowSelection{700, 5, 3}, RowSelection{2000, 130, 700}, RowSelection{3000, 3, 30'000},
                                  RowSelection{700, 5, 511}, RowSelection{700, 5, 512}}) {
    INFO(size.rows << " rows into " << size.table);
    const Tensor x =
        affine(random_tensor({size.rows, size.cols}, DType::float32), 1.0 / 3).value();  // no sum of them is exact
    Tensor index = random_integers({size.rows}, -1, int(size.table), DType::int32);
    int32_t* const entry = index.mutable_data<int32_t>();
    for (int64_t r = 0; r < size.rows; r += 3) entry[r] = int32_t(size.table) - 1;
    entry[1] = INT32_MAX;
    entry[2] = INT32_MIN;
    Tensor expected = random_tensor({size.table, size.cols}, DType::float32, 3), found = expected.to(Device::cuda);
    gpu::scatter_add_rows<float>({}, size, x.to(Device::cuda).data<float>(), index.to(Device::cuda).data<int32_t>(),
                                 found.mutable_data<float>());
    cpu::scatter_add_rows<float>({}, size, x.data<float>(), index.data<int32_t>(), expected.mutable_data<float>());
    CHECK(same_bits(found.to(Device::cpu), expected));
  }
  CHECK_ERROR(gpu::scatter_add_rows<float>({}, {int64_t{1} << 31, 1, 1}, nullptr, nullptr, nullptr),
              "scatter_add_rows: 2147483648 rows into 1, expected at most 2147483647");
}

#endif
