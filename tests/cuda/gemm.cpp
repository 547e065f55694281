#include "core/kernels/gemm.h"

#include <cmath>
#include <utility>

#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;

namespace {

// A product with room between rows and between members of the batch, where NaN stands.
Gemm spacious(int64_t m, int64_t n, int64_t k, bool ta, bool tb, int64_t batch, double alpha, double beta) {
  Gemm g{m, n, k, ta, tb};
  g.lda = (ta ? m : k) + 3, g.ldb = (tb ? k : n) + 1, g.ldc = n + 2;
  g.alpha = alpha, g.beta = beta, g.batch = batch;
  g.stride_a = (ta ? k : m) * g.lda + 5, g.stride_b = (tb ? n : k) * g.ldb, g.stride_c = m * g.ldc + 7;
  return g;
}

std::vector<float> numbers(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  std::vector<float> x(size_t(batch * stride + 1), NAN);
  for (int64_t member = 0; member < batch; ++member)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        x[size_t(member * stride + i * ld + j)] = float(bfloat16(float(sequence.uniform(-1, 1))));
  return x;
}

// By the definition, in double. What lies between the rows of C stays.
std::vector<double> reference(const Gemm& g, const std::vector<float>& a, const std::vector<float>& b,
                              const std::vector<float>& c) {
  std::vector<double> result(c.begin(), c.end());
  for (int64_t member = 0; member < g.batch; ++member)
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < g.k; ++l)
          sum += double(a[size_t(member * g.stride_a + (g.transpose_a ? l * g.lda + i : i * g.lda + l))]) *
                 double(b[size_t(member * g.stride_b + (g.transpose_b ? j * g.ldb + l : l * g.ldb + j))]);
        double& to = result[size_t(member * g.stride_c + i * g.ldc + j)];
        to = g.alpha * sum + (g.beta == 0 ? 0 : g.beta * to);
      }
  return result;
}

template <class T>
std::vector<float> on_device(const Gemm& g, const std::vector<float>& a, const std::vector<float>& b,
                             const std::vector<float>& c) {
  const auto as = [](const std::vector<float>& x) {
    std::vector<T> result;
    for (const float value : x) result.push_back(T(value));
    return result;
  };
  OnDevice<T> device_a(as(a)), device_b(as(b)), device_c(as(c));
  gpu::gemm<T>({}, g, device_a.data(), device_b.data(), device_c.data());
  std::vector<float> result;
  for (const T value : device_c.values()) result.push_back(float(value));
  return result;
}

}  // namespace

TEST_CASE("matrix products on CUDA equal their definition", "[gpu]") {
  const int64_t shapes[][4] = {{1, 1, 1, 1}, {7, 5, 3, 2},    {5, 7, 0, 3},  {0, 3, 2, 1},     {3, 0, 2, 1},
                               {3, 2, 5, 0}, {65, 33, 17, 2}, {31, 1, 9, 1}, {130, 67, 129, 1}};
  for (const auto& [m, n, k, batch] : shapes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {0.5, 1.0}, {-2.0, 0.25}}) {
          INFO(m << " x " << n << " x " << k << ", batch of " << batch << (ta ? ", A^T" : "") << (tb ? ", B^T" : "")
                 << ", alpha " << alpha << ", beta " << beta);
          const Gemm g = spacious(m, n, k, ta, tb, batch, alpha, beta);
          const auto a = numbers(ta ? k : m, ta ? m : k, g.lda, batch, g.stride_a, 1);
          const auto b = numbers(tb ? n : k, tb ? k : n, g.ldb, batch, g.stride_b, 2);
          // With beta = 0, C is NaN to begin with.
          const auto c = numbers(beta == 0 ? 0 : m, n, g.ldc, batch, g.stride_c, 3);
          const auto expected = reference(g, a, b, c);
          CHECK(difference(on_device<float>(g, a, b, c), expected) <= tolerance::float32);
          CHECK(difference(on_device<bfloat16>(g, a, b, c), expected) <= tolerance::bfloat16);
        }
}

TEST_CASE("matrix products on CUDA may share an operand between the members of a batch", "[gpu]") {
  Gemm g = spacious(9, 8, 7, false, false, 3, 1, 0);
  g.stride_b = 0;
  const auto a = numbers(9, 7, g.lda, 3, g.stride_a, 1), b = numbers(7, 8, g.ldb, 1, 7 * g.ldb, 2);
  const std::vector<float> c(size_t(3 * g.stride_c), NAN);
  CHECK(difference(on_device<float>(g, a, b, c), reference(g, a, b, c)) <= tolerance::float32);
  CHECK(difference(on_device<bfloat16>(g, a, b, c), reference(g, a, b, c)) <= tolerance::bfloat16);
}

TEST_CASE("products of float32 on CUDA may be of operands rounded to TF32", "[gpu]") {
  const Gemm g = spacious(64, 64, 128, false, true, 1, 1, 0);
  const auto a = numbers(64, 128, g.lda, 1, g.stride_a, 1), b = numbers(64, 128, g.ldb, 1, g.stride_b, 2);
  const std::vector<float> c(size_t(g.stride_c), NAN);
  set_float32_products(Float32Products::tf32);
  const auto y = on_device<float>(g, a, b, c);
  set_float32_products(Float32Products::full);
  CHECK(difference(y, reference(g, a, b, c)) <= tolerance::float32);  // bfloat16 operands are exact in TF32
}
