#include "cuda/ladder/ladder.h"

#include <bit>

#include "core/cpu/gemm.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;
using ladder::Assignment;
using ladder::Product;

static std::vector<float> normal(int64_t n, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = sequence.normal();
  return x;
}

TEST_CASE("the ladder: every step of softmax equals the CPU", "[gpu]") {
  // Of rows of whole fours, of others, and of more than registers hold.
  for (const Rows size : {Rows{1, 1}, Rows{5, 31}, Rows{131, 64}, Rows{3, 1022}, Rows{6, 1024}, Rows{2, 1500}}) {
    const auto x = normal(size.rows * size.cols, 1);
    std::vector<float> expected(x.size());
    cpu::softmax_forward<float>({}, size, x.data(), expected.data());
    for (const auto& step : ladder::softmax_steps())
      in_every_order([&] {
        INFO(step.name << ", " << size.rows << " x " << size.cols);
        OnDevice<float> from(x), to(x.size());
        step.run({}, size, from.data(), to.data());
        CHECK(difference(to.values(), expected) <= tolerance::float32);
      });
  }
}

TEST_CASE("the ladder: every step of matmul equals the CPU", "[gpu]") {
  for (const Product p : {Product{1, 1, 1}, Product{33, 7, 9}, Product{4, 4, 4}, Product{131, 140, 36},
                          Product{260, 132, 20}, Product{40, 257, 64}}) {
    const auto a = normal(int64_t(p.m) * p.k, 1), b = normal(int64_t(p.k) * p.n, 2);
    std::vector<float> expected(size_t(p.m) * size_t(p.n));
    cpu::gemm_tile<float>(false, false, p.m, p.n, p.k, 1, a.data(), p.k, b.data(), p.n, 0, expected.data(), p.n);
    for (const auto& step : ladder::matmul_steps())
      in_every_order([&] {
        INFO(step.name << ", " << p.m << " x " << p.n << " x " << p.k);
        OnDevice<float> from_a(a), from_b(b), to(expected.size());
        step.run({}, p, from_a.data(), from_b.data(), to.data());
        CHECK(difference(to.values(), expected) <= tolerance::float32);
      });
  }
}

TEST_CASE("the ladder: every step finds the nearest centroid, of several the first", "[gpu]") {
  for (const Assignment size : {Assignment{1, 1}, Assignment{300, 2}, Assignment{1025, 37}, Assignment{2500, 1100}}) {
    RandomStream sequence(3, 0, Purpose::test);
    // Of eight bits in all, so that ties are frequent.
    const auto codes = [&](int n) {
      std::vector<uint64_t> x(static_cast<size_t>(n));
      for (uint64_t& code : x) code = (uint64_t(sequence.next()) << 32 | sequence.next()) & 0xc0000003'0f000000u;
      return x;
    };
    const auto queries = codes(size.N), centroids = codes(size.C);
    std::vector<int32_t> expected;
    for (const uint64_t code : queries) {
      int32_t best = 0;
      for (int32_t c = 1; c < size.C; ++c)
        if (std::popcount(code ^ centroids[size_t(c)]) < std::popcount(code ^ centroids[size_t(best)])) best = c;
      expected.push_back(best);
    }
    for (const auto& step : ladder::hamming_steps())
      in_every_order([&] {
        INFO(step.name << ", N " << size.N << " C " << size.C);
        OnDevice<uint64_t> from(queries), among(centroids);
        OnDevice<int32_t> to(queries.size());
        step.run({}, size, from.data(), among.data(), to.data());
        CHECK(to.values() == expected);
      });
  }
}
