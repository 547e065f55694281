#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/ops/ops_test.h"

namespace {

const DType sortable[] = {DType::float32, DType::float64, DType::int32, DType::int64};

// Few values, so that ties are frequent; in float rows some NaN and infinities.
Tensor operand(const Shape& shape, DType dtype) {
  Tensor x = random_integers(shape, -4, 4, DType::float64);
  double* value = x.mutable_data<double>();
  for (int64_t i = 0; i < x.elements() && is_floating(dtype); ++i) {
    if (value[i] == 4) value[i] = NAN;
    if (value[i] == 3) value[i] = INFINITY;
    if (value[i] == -4) value[i] = -INFINITY;
    if (value[i] == 0 && i % 2) value[i] = -0.0;  // equal to 0
  }
  return x.cast(dtype);
}

// Columns of each row by `before`, ties by rising column.
template <class F>
std::vector<int32_t> sorted_columns(const Tensor& x, F&& before) {
  const auto values = as_double(x);
  const int64_t cols = x.size(-1);
  std::vector<int32_t> result;
  for (int64_t first = 0; first < x.elements(); first += cols) {
    std::vector<int32_t> order(static_cast<size_t>(cols));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return before(values[size_t(first + a)], values[size_t(first + b)]);
    });
    result.insert(result.end(), order.begin(), order.end());
  }
  return result;
}

}  // namespace

TEST_CASE("stable_sort gives the columns by rising value, ties by rising column, NaN last", "[sort]") {
  for (const Shape& shape : odd_shapes())
    for (DType dtype : sortable) {
      INFO(shape << ' ' << name(dtype));
      const Tensor x = operand(shape, dtype), result = stable_sort(x);
      CHECK(result.shape() == shape);
      CHECK(result.to_vector<int32_t>() ==
            sorted_columns(x, [](double a, double b) { return a < b || (!std::isnan(a) && std::isnan(b)); }));
    }
}

TEST_CASE("top_k gives the largest, largest first, ties by rising column, NaN as the largest", "[sort]") {
  for (const Shape& shape : odd_shapes())
    for (DType dtype : sortable) {
      const Tensor x = operand(shape, dtype);
      const int64_t cols = shape[-1];
      const auto order =
          sorted_columns(x, [](double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); });
      for (int64_t k : {int64_t{0}, std::min<int64_t>(1, cols), cols / 2, cols}) {
        INFO(shape << ' ' << name(dtype) << " k " << k);
        const TopK result = top_k(x, k);
        CHECK(result.columns.shape() == shape.with(-1, k));
        CHECK(result.values.shape() == shape.with(-1, k));
        CHECK(result.values.dtype() == dtype);
        std::vector<int32_t> columns;
        std::vector<double> values;
        for (int64_t row = 0; cols > 0 && row < x.elements() / cols; ++row)
          for (int64_t i = 0; i < k; ++i) {
            columns.push_back(order[size_t(row * cols + i)]);
            values.push_back(as_double(x)[size_t(row * cols + columns.back())]);
            if (x.elements() > 1000 && i > 50) break;  // the reference takes its time
          }
        if (x.elements() > 1000 && k > 50) continue;
        CHECK(result.columns.to_vector<int32_t>() == columns);
        CHECK(difference(result.values, values) == 0);
      }
    }
}

TEST_CASE("top_k of long rows agrees with sorting all of them", "[sort]") {
  const Tensor x = operand({3, 20'011}, DType::float32);
  const auto order = sorted_columns(x, [](double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); });
  CHECK(top_k(x, 20'011).columns.to_vector<int32_t>() == order);
  const auto few = top_k(x, 100).columns.to_vector<int32_t>();
  for (size_t i = 0; i < few.size(); ++i) REQUIRE(few[i] == order[i / 100 * 20'011 + i % 100]);
}

TEST_CASE("whole numbers beyond what a double holds are told apart", "[sort]") {
  const int64_t big = int64_t{1} << 60;
  const Tensor x = Tensor::from<int64_t>({big + 1, big, big + 2}, {3});
  CHECK(stable_sort(x).to_vector<int32_t>() == std::vector<int32_t>{1, 0, 2});
  CHECK(top_k(x, 1).values.to_vector<int64_t>() == std::vector<int64_t>{big + 2});
}

TEST_CASE("argmax is the first column of the largest", "[sort]") {
  const Tensor x = Tensor::from<float>({1, 3, 3, NAN, 5, NAN, -INFINITY, -INFINITY, -INFINITY}, {3, 3});
  CHECK(argmax(x).to_vector<int32_t>() == std::vector<int32_t>{1, 0, 0});
  CHECK(argmax(x).shape() == Shape{3});
  CHECK(argmax(Tensor::full({5}, 1, DType::int64)).item() == 0);
  CHECK(argmax(Tensor({0, 5})).shape() == Shape{0});
}

TEST_CASE("sorting refuses what it cannot compute", "[sort]") {
  const Tensor x({2, 3});
  CHECK_ERROR(stable_sort(Tensor()), "stable_sort: x was never given a value");
  CHECK_ERROR(stable_sort(Tensor(Shape{})), "stable_sort: expected at least one axis, got a scalar");
  CHECK_ERROR(stable_sort(x.cast(DType::uint8)), "stable_sort: uint8 cannot be sorted");
  CHECK_ERROR(top_k(x, 4), "top_k: k = 4 of 3 columns of [2, 3]");
  CHECK_ERROR(top_k(x, -1), "top_k: k = -1 of 3 columns of [2, 3]");
  CHECK_ERROR(top_k(x.cast(DType::bfloat16), 1), "top_k: bfloat16 is not computed on cpu");
  CHECK_ERROR(top_k(Tensor(Shape{}), 0), "top_k: expected at least one axis, got a scalar");
  CHECK_ERROR(argmax(Tensor({2, 0})), "argmax: the last axis of [2, 0] is empty");
  CHECK_NEEDS_CUDA(stable_sort(elsewhere({0, 3})), "stable_sort");
  CHECK_NEEDS_CUDA(top_k(elsewhere({0, 3}), 1).values.shape(), "top_k");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("sort") {
  // Several rows a block, a row a block, rows of several tiles: two, an odd number, with a short last one.
  for (const Shape& shape : {Shape{0, 5}, Shape{3, 0}, Shape{1, 1}, Shape{1031, 1}, Shape{3, 2}, Shape{5, 31},
                             Shape{700, 7}, Shape{2, 3, 33}, Shape{5, 1000}, Shape{3, 2048}, Shape{2, 2049},
                             Shape{1, 3, 4096}, Shape{2, 6151}, Shape{1, 20011}})
    for (const bool whole : {false, true})
      cases.add(
          label("stable_sort and top_k", shape) + (whole ? " of int32" : ""),
          [=](const Bench& bench) -> Results {
            const Tensor ties =
                whole ? operand(shape, DType::int32).to(bench.device) : bench.place(operand(shape, DType::float32));
            const Tensor x = whole ? ties : bench.normal(shape);
            const int64_t cols = shape[-1];
            Results results{{"order", stable_sort(x)}, {"order of ties", stable_sort(ties)}};
            for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{32}, cols / 2, cols})
              for (const Tensor& from : {x, ties})
                if (k <= cols) {
                  const TopK best = top_k(from, k);
                  results.insert(results.end(),
                                 {{concat("values of ", k), best.values}, {concat("columns of ", k), best.columns}});
                }
            return results;
          },
          true);
  cases.add("the order of numbers of 64 bits", [](const Bench& bench) -> Results {
    const int64_t lowest = std::numeric_limits<int64_t>::min(), big = int64_t{1} << 60;
    std::vector<int64_t> numbers{big + 1, big, 0, -1, lowest, big + 2, -big, lowest + 1, -(lowest + 1)};
    numbers.resize(5000, big);
    const Tensor x = Tensor::from(numbers, {5000}).to(bench.device);
    return {{"order", stable_sort(x)},
            {"columns of 4", top_k(x, 4).columns},
            {"columns of all", top_k(x, 5000).columns},
            {"argmax", argmax(x)}};
  });
}

#endif
