// Cases of parity.h: matrix products and order within rows (gemm, sort).
#include <cmath>
#include <limits>

#include "tests/cuda/parity.h"

namespace cairn::test {

void add_matmul(std::vector<Case>& cases) {
  // The operands as they are without a transposition.
  const std::pair<Shape, Shape> operands[] = {
      {{1, 1}, {1, 1}},
      {{5, 7}, {7, 3}},
      {{0, 7}, {7, 3}},
      {{5, 0}, {0, 3}},
      {{5, 7}, {7, 0}},
      {{67, 129}, {129, 33}},
      {{3, 5, 7}, {3, 7, 2}},
      {{3, 5, 7}, {7, 2}},
      {{5, 7}, {3, 7, 2}},
      {{2, 3, 5, 7}, {7, 2}},
      {{0, 5, 7}, {0, 7, 2}},
      {{2, 0, 5, 7}, {7, 2}},
      {{2, 3, 5, 0}, {2, 3, 0, 2}},
      {{1, 300}, {300, 1}},
      {{7, 31, 65}, {7, 65, 31}},
  };
  for (const auto& [a, b] : operands)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        cases.push_back({label("matmul", a) + (ta ? "^T" : "") + " and " + to_string(b) + (tb ? "^T" : ""),
                         [=, a = a, b = b](const Bench& bench) -> Results {
                           const auto swapped = [](const Shape& x, bool swap) {
                             return swap ? x.with(-1, x[-2]).with(-2, x[-1]) : x;
                           };
                           const Variable x = bench.variable(bench.normal(swapped(a, ta))),
                                          y = bench.variable(bench.normal(swapped(b, tb), 2));
                           return with_gradients(bench, matmul(x, y, ta, tb), {{"x", x}, {"y", y}});
                         }});
  for (const auto& [x, out] : std::vector<std::pair<Shape, int64_t>>{
           {{7}, 5}, {{1, 1}, 1}, {{3, 5, 33}, 17}, {{0, 4}, 3}, {{4, 0}, 3}, {{4, 3}, 0}, {{129, 67}, 65}})
    cases.push_back({label("linear", x) + " to " + std::to_string(out), [x = x, out = out](const Bench& bench) {
                       const Variable input = bench.variable(bench.normal(x)),
                                      weight = bench.variable(bench.normal({out, x[-1]}, 2)),
                                      bias = bench.variable(bench.normal({out}, 3));
                       Results results = with_gradients(bench, linear(input, weight, bias),
                                                        {{"input", input}, {"weight", weight}, {"bias", bias}});
                       results.push_back({"without bias", linear(input, weight, {}).value()});
                       return results;
                     }});
}

// Few values, so that ties are frequent; NaN, infinities and two zeros if they are floating.
static Tensor with_ties(const Bench& bench, const Shape& shape, bool whole) {
  const Tensor numbers = bench.integers(shape, -5, 5).to(Device::cpu);
  if (whole) return numbers.to(bench.device);
  Tensor x = numbers.cast(DType::float32);
  float* value = x.mutable_data<float>();
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (value[i] == 5) value[i] = NAN;
    if (value[i] == 4) value[i] = INFINITY;
    if (value[i] == -5) value[i] = -INFINITY;
    if (value[i] == 0 && i % 2) value[i] = -0.0f;
  }
  return bench.place(x);
}

void add_sort(std::vector<Case>& cases) {
  // Several rows a block, a row a block, rows of several tiles: two, an odd number, with a short last one.
  for (const Shape& shape : {Shape{0, 5}, Shape{3, 0}, Shape{1, 1}, Shape{1031, 1}, Shape{3, 2}, Shape{5, 31},
                             Shape{700, 7}, Shape{2, 3, 33}, Shape{5, 1000}, Shape{3, 2048}, Shape{2, 2049},
                             Shape{1, 3, 4096}, Shape{2, 6151}, Shape{1, 20011}})
    for (const bool whole : {false, true})
      cases.push_back({label("stable_sort and top_k", shape) + (whole ? " of int32" : ""),
                       [=](const Bench& bench) -> Results {
                         const Tensor ties = with_ties(bench, shape, whole);
                         const Tensor x = whole ? ties : bench.normal(shape);
                         const int64_t cols = shape[-1];
                         Results results{{"order", stable_sort(x)}, {"order of ties", stable_sort(ties)}};
                         for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{32}, cols / 2, cols})
                           for (const Tensor& from : {x, ties})
                             if (k <= cols) {
                               const TopK best = top_k(from, k);
                               results.insert(results.end(), {{concat("values of ", k), best.values},
                                                              {concat("columns of ", k), best.columns}});
                             }
                         return results;
                       },
                       true});
  cases.push_back({"the order of numbers of 64 bits", [](const Bench& bench) -> Results {
                     const int64_t lowest = std::numeric_limits<int64_t>::min(), big = int64_t{1} << 60;
                     std::vector<int64_t> numbers{big + 1, big,  0,          -1,           lowest,
                                                  big + 2, -big, lowest + 1, -(lowest + 1)};
                     numbers.resize(5000, big);
                     const Tensor x = Tensor::from(numbers, {5000}).to(bench.device);
                     return {{"order", stable_sort(x)},
                             {"columns of 4", top_k(x, 4).columns},
                             {"columns of all", top_k(x, 5000).columns},
                             {"argmax", argmax(x)}};
                   }});
}

}  // namespace cairn::test
