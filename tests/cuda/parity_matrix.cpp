// Cases of parity.h: matrix products and order within rows (gemm, sort).
#include "tests/cuda/parity.h"

namespace cairn::test {

static void add_products(std::vector<Case>& cases) {
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
                           return with_gradients(bench, matmul(x, y, ta, tb), {x, y});
                         }});
  for (const auto& [x, out] : std::vector<std::pair<Shape, int64_t>>{
           {{7}, 5}, {{1, 1}, 1}, {{3, 5, 33}, 17}, {{0, 4}, 3}, {{4, 0}, 3}, {{4, 3}, 0}, {{129, 67}, 65}})
    cases.push_back({label("linear", x) + " to " + std::to_string(out), [x = x, out = out](const Bench& bench) {
                       const Variable input = bench.variable(bench.normal(x)),
                                      weight = bench.variable(bench.normal({out, x[-1]}, 2)),
                                      bias = bench.variable(bench.normal({out}, 3));
                       Results results = with_gradients(bench, linear(input, weight, bias), {input, weight, bias});
                       results.push_back(linear(input, weight, {}).value());
                       return results;
                     }});
}

void add_matrix(std::vector<Case>& cases) { add_products(cases); }

}  // namespace cairn::test
