#include "tests/ops/ops_test.h"

TEST_CASE("gather_rows picks rows, zeros for -1, and scatter_add_rows adds them back", "[rows]") {
  for (const Shape& picked : {Shape{}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{0}, Shape{2, 0}, Shape{2003}})
    for (int64_t n : {1, 4, 300})
      for (int64_t cols : {0, 1, 5, 131})
        for (DType dtype : {DType::float32, DType::float64}) {
          INFO("index " << picked << " of " << n << " rows of " << cols << ' ' << name(dtype));
          const Tensor index = random_integers(picked, -1, int(n) - 1);
          Shape shape = picked;
          shape.push_back(cols);
          const Tensor table = random_tensor({n, cols}, dtype, 1), x = random_tensor(shape, dtype, 2);
          const Tensor result = gather_rows(table, index);
          CHECK(result.shape() == shape);
          CHECK(difference(result, reference_gather(table, index)) == 0);
          const Tensor sums = scatter_add_rows(x, index, n);
          CHECK(sums.shape() == Shape{n, cols});
          CHECK(difference(sums, reference_scatter(x, index, n)) <= tolerance_of(dtype));
        }
}

TEST_CASE("an empty table has no rows to pick but none", "[rows]") {
  const Tensor none({0, 3});
  CHECK(gather_rows(none, int32s({-1})).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(scatter_add_rows(Tensor::full({1, 3}, 1), int32s({-1}), 0).shape() == Shape{0, 3});
  CHECK_ERROR(gather_rows(none, int32s({0})), "gather_rows: index[0] is 0, expected -1 to -1");
}

TEST_CASE("gradients of gather_rows and scatter_add_rows", "[rows][grad]") {
  const Tensor index = Tensor::from<int32_t>({2, 0, -1, 2}, {2, 2});  // twice, never, nowhere
  CHECK_GRADIENT([&](const auto& in) { return gather_rows(square(in[0]), index); }, random_tensor({4, 3}));
  CHECK_GRADIENT([&](const auto& in) { return scatter_add_rows(square(in[0]), index, 4); }, random_tensor({2, 2, 3}));
}

TEST_CASE("scatter_add_rows gives the same bits on any number of threads", "[rows]") {
  const Tensor x = random_tensor({5000, 131}, DType::float32), index = random_integers({5000}, 0, 9);
  check_any_threads([&] { return std::vector<Tensor>{scatter_add_rows(x, index, 10), gather_rows(x, index)}; });
}

TEST_CASE("gather_rows and scatter_add_rows refuse what they cannot compute", "[rows]") {
  const Tensor table({4, 3}), index = int32s({0, 3});
  CHECK_ERROR(gather_rows(table, int32s({0, 4})), "gather_rows: index[1] is 4, expected -1 to 3");
  CHECK_ERROR(gather_rows(table, int32s({-2})), "gather_rows: index[0] is -2, expected -1 to 3");
  CHECK_ERROR(gather_rows(table, index.cast(DType::int64)), "gather_rows: expected index to be int32, got int64");
  CHECK_ERROR(gather_rows(table, Tensor()), "gather_rows: index was never given a value");
  CHECK_ERROR(gather_rows(Tensor(), index), "gather_rows: table was never given a value");
  CHECK_ERROR(gather_rows(Tensor({4}), index), "gather_rows: expected table of shape [N, C], got [4]");
  CHECK_ERROR(gather_rows(table.cast(DType::int32), index), "gather_rows: table must be floating, got int32");
  CHECK_ERROR(gather_rows(elsewhere({0, 3}), index), "gather_rows: index is on cpu, table on cuda");
  const Tensor x({2, 3});
  CHECK_ERROR(scatter_add_rows(x, int32s({0, 4}), 4), "scatter_add_rows: index[1] is 4, expected -1 to 3");
  CHECK_ERROR(scatter_add_rows(x, int32s({0}), 4), "scatter_add_rows: expected index of shape [2], got [1]");
  CHECK_ERROR(scatter_add_rows(x, index, -1), "scatter_add_rows: expected at least 0 rows, got -1");
  CHECK_ERROR(scatter_add_rows(Tensor(), index, 4), "scatter_add_rows: x was never given a value");
  const Tensor cuda = elsewhere({0, 3}), none = elsewhere({0}, DType::int32);
  CHECK_NEEDS_CUDA(gather_rows(cuda, none), "gather_rows");
  if (backends() == "cpu") CHECK_THROWS_AS(scatter_add_rows(cuda, none, 2), DeviceError);
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("gather_rows and scatter_add_rows") {
  // rows, columns, rows of the table
  const int64_t sizes[][3] = {{0, 4, 3},    {4, 0, 3},    {4, 3, 0},     {1, 1, 1},     {5, 7, 3},   {33, 8, 2},
                              {67, 13, 11}, {3, 131, 40}, {130, 260, 5}, {257, 64, 97}, {1031, 4, 1}};
  for (const auto& [rows, cols, table] : sizes)
    for (const int64_t skip : {0, 1})  // elements before the first: packs need an aligned address
      cases.add(label("rows of a table", {rows, cols, table}) + (skip ? ", not aligned" : ""),
                [=, rows = rows, cols = cols, table = table](const Bench& bench) -> Results {
                  // Outside, too: kernels pass over that (the CPU's operation allows -1 alone).
                  const Tensor index = bench.integers({rows}, -1, int(table) - 1);
                  return {
                      {"gathered", gather_rows(bench.shifted({table, cols}, -0.25, 0.25, 1, skip), index)},
                      {"scattered", scatter_add_rows(bench.shifted({rows, cols}, -0.25, 0.25, 2, skip), index, table)}};
                });
  cases.add("rows of a table with gradients", [](const Bench& bench) {
    const Variable table = bench.variable(bench.normal({5, 12}));
    const Tensor index = bench.integers({3, 11}, -1, 4);
    const Variable x = gather_rows(table, index);
    return with_gradients(bench, x + scatter_add_rows(table, bench.integers({5}, -1, 0, 3), 1), {{"table", table}});
  });
}

#endif
