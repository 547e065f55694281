#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/cpu/gemm.h"
#include "tests/ops/ops_test.h"

namespace {

Shape joined(const Shape& leading, int64_t rows, int64_t cols) {
  Shape shape = leading;
  shape.push_back(rows);
  shape.push_back(cols);
  return shape;
}

struct Case {
  Shape a, b;  // leading axes
  int64_t m, n, k;
};

}  // namespace

TEST_CASE("matmul agrees with its definition for all transposes, batches and shared operands", "[matmul]") {
  const Case cases[] = {
      {{}, {}, 1, 1, 1},      {{}, {}, 3, 5, 7},      {{}, {}, 0, 5, 7},         {{}, {}, 3, 0, 7},
      {{}, {}, 3, 5, 0},      {{4}, {4}, 3, 2, 5},    {{2, 3}, {2, 3}, 4, 3, 2}, {{4}, {}, 3, 2, 5},
      {{2, 3}, {}, 5, 3, 2},  {{}, {4}, 3, 2, 5},     {{}, {2, 3}, 3, 2, 5},     {{0}, {0}, 3, 2, 5},
      {{0}, {}, 3, 2, 5},     {{3}, {3}, 2, 2, 0},    {{3}, {}, 2, 4, 0},        {{}, {}, 1031, 3, 2},
      {{}, {}, 2, 1601, 3},   {{}, {}, 67, 131, 257}, {{5}, {5}, 130, 9, 3},     {{2}, {}, 530, 4, 3},
      {{}, {}, 20, 9, 1100},  {{2}, {}, 3, 5, 1031},  {{}, {3}, 3, 5, 1600},     {{}, {}, 300, 900, 0},
      {{}, {}, 200, 2000, 3},
  };
  for (const Case& c : cases)
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        for (DType dtype : {DType::float32, DType::float64}) {
          const Tensor a = random_tensor(ta ? joined(c.a, c.k, c.m) : joined(c.a, c.m, c.k), dtype, 1);
          const Tensor b = random_tensor(tb ? joined(c.b, c.n, c.k) : joined(c.b, c.k, c.n), dtype, 2);
          INFO(a.shape() << (ta ? "^T " : " ") << b.shape() << (tb ? "^T " : " ") << name(dtype));
          const Shape leading = c.a.rank() ? c.a : c.b;
          const Tensor result = matmul(a, b, ta, tb);
          CHECK(result.shape() == joined(leading, c.m, c.n));
          CHECK(difference(result, reference_matmul(a, b, ta, tb)) <= tolerance_of(dtype));
        }
}

namespace {

// A product with room between rows and between members of the batch, where NaN stands.
Gemm spacious(int64_t m, int64_t n, int64_t k, bool ta, bool tb, int64_t batch, double alpha, double beta) {
  Gemm g{m, n, k, ta, tb};
  g.lda = (ta ? m : k) + 3, g.ldb = (tb ? k : n) + 1, g.ldc = n + 2;
  g.alpha = alpha, g.beta = beta, g.batch = batch;
  g.stride_a = (ta ? k : m) * g.lda + 5, g.stride_b = (tb ? n : k) * g.ldb, g.stride_c = m * g.ldc + 7;
  return g;
}

// Numbers of bfloat16.
template <class T>
std::vector<T> numbers(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  std::vector<T> x(size_t(batch * stride + 1), T(NAN));
  for (int64_t member = 0; member < batch; ++member)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        x[size_t(member * stride + i * ld + j)] = T(float(bfloat16(float(sequence.uniform(-1, 1)))));
  return x;
}

template <class T>
std::vector<T> on_cpu(const Gemm& g, const std::vector<T>& a, const std::vector<T>& b, std::vector<T> c) {
  cpu::gemm<T>({}, g, a.data(), b.data(), c.data());
  return c;
}

// run(g, a, b, c) gives what the definition does.
template <class T, class F>
void check_products(double tolerance, F&& run) {
  const int64_t shapes[][4] = {{1, 1, 1, 1}, {7, 5, 3, 2},    {5, 7, 0, 3},  {0, 3, 2, 1},      {3, 0, 2, 1},
                               {3, 2, 5, 0}, {65, 33, 17, 2}, {31, 1, 9, 1}, {130, 67, 129, 1}, {3, 4, 1500, 1}};
  for (const auto& [m, n, k, batch] : shapes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {0.5, 1.0}, {-2.0, 0.25}}) {
          INFO(m << " x " << n << " x " << k << ", batch of " << batch << (ta ? ", A^T" : "") << (tb ? ", B^T" : "")
                 << ", alpha " << alpha << ", beta " << beta);
          const Gemm g = spacious(m, n, k, ta, tb, batch, alpha, beta);
          const auto a = numbers<T>(ta ? k : m, ta ? m : k, g.lda, batch, g.stride_a, 1);
          const auto b = numbers<T>(tb ? n : k, tb ? k : n, g.ldb, batch, g.stride_b, 2);
          // With beta = 0, C is NaN to begin with.
          const auto c = numbers<T>(beta == 0 ? 0 : m, n, g.ldc, batch, g.stride_c, 3);
          CHECK(difference(run(g, a, b, c), reference_gemm(g, a, b, c)) <= tolerance);
        }
}

}  // namespace

TEST_CASE("gemm scales, adds onto C, and reads no C where beta is 0", "[matmul]") {
  check_products<float>(tolerance::float32, on_cpu<float>);
  check_products<double>(tolerance::float64, on_cpu<double>);
}

namespace {

// gemm_tile on matrices that are parts of wider ones: what it reads and writes is its part alone.
template <class T>
void check_tile(int64_t m, int64_t n, int64_t k, bool ta, bool tb, double beta) {
  INFO(m << " x " << n << " x " << k << (ta ? " A^T" : "") << (tb ? " B^T" : "") << " beta " << beta);
  const int64_t lda = (ta ? m : k) + 2, ldb = (tb ? k : n) + 1, ldc = n + 3;
  const auto part = [](int64_t rows, int64_t cols, int64_t ld, uint64_t seed) {
    std::vector<T> x(size_t(rows == 0 ? 0 : (rows - 1) * ld + cols), T(NAN));  // between the rows
    RandomStream random(seed, 0, Purpose::test);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) x[size_t(i * ld + j)] = T(random.uniform() - 0.5);
    return x;
  };
  const std::vector<T> a = part(ta ? k : m, ta ? m : k, lda, 1), b = part(tb ? n : k, tb ? k : n, ldb, 2);
  std::vector<T> c(size_t(m * ldc), T(7));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[size_t(i * ldc + j)] = beta == 0 ? T(NAN) : T(i - j);
  const auto expected = reference_gemm({m, n, k, ta, tb, lda, ldb, ldc, 0.5, beta}, a, b, c);
  cpu::gemm_tile<T>(ta, tb, m, n, k, 0.5, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
  double largest = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    const double error = std::abs(double(c[i]) - expected[i]) / std::max(1.0, std::abs(expected[i]));
    largest = error <= largest ? largest : error;  // NaN stays
  }
  CHECK(largest <= tolerance_of(dtype_of<T>));
}

}  // namespace

TEMPLATE_TEST_CASE("gemm_tile is right at every border of its blocks", "[matmul]", float, double) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      for (int64_t m = 0; m <= 30; ++m) check_tile<TestType>(m, 33, 19, ta, tb, 0);  // each number of rows of a block
      for (const int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65})
        for (const int64_t k : {0, 1, 15, 16, 17, 33})
          for (const double beta : {0.0, 1.0, -0.5}) check_tile<TestType>(5, n, k, ta, tb, beta);
      // More than one part of the columns, the depth, the rows.
      check_tile<TestType>(3, 801, 5, ta, tb, 1);
      check_tile<TestType>(3, 40, 1000, ta, tb, 1);
      check_tile<TestType>(251, 35, 6, ta, tb, 1);
      check_tile<TestType>(20, 790, 390, ta, tb, 0);
    }
}

TEST_CASE("linear is x weight^T + bias over rows of any shape", "[matmul]") {
  for (const Shape& leading : {Shape{}, Shape{1}, Shape{7}, Shape{2, 3}, Shape{0}, Shape{2, 0}, Shape{301}})
    for (int64_t in : {0, 1, 5})
      for (int64_t out : {0, 1, 4})
        for (bool with_bias : {false, true})
          for (DType dtype : {DType::float32, DType::float64}) {
            Shape shape = leading;
            shape.push_back(in);
            INFO(shape << " to " << out << " bias " << with_bias << ' ' << name(dtype));
            const Tensor x = random_tensor(shape, dtype, 1), weight = random_tensor({out, in}, dtype, 2);
            const Tensor bias = with_bias ? random_tensor({out}, dtype, 3) : Tensor();
            const Tensor before = with_bias ? bias.clone() : Tensor();
            auto expected = reference_matmul(x.reshape({leading.elements(), in}), weight, false, true);
            for (size_t i = 0; i < expected.size() && with_bias; ++i) expected[i] += as_double(bias)[i % size_t(out)];
            const Tensor y = linear(x, weight, bias);
            CHECK(y.shape() == shape.with(-1, out));
            CHECK(difference(y, expected) <= tolerance_of(dtype));
            if (with_bias) CHECK(same_bits(bias, before));
          }
}

TEST_CASE("gradient of matmul for all transposes, batches and shared operands", "[matmul][grad]") {
  for (const Case& c :
       {Case{{}, {}, 2, 3, 4}, Case{{2}, {2}, 2, 3, 1}, Case{{2, 2}, {}, 2, 1, 3}, Case{{}, {3}, 2, 2, 2}})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const Tensor a = random_tensor(ta ? joined(c.a, c.k, c.m) : joined(c.a, c.m, c.k), DType::float64, 1);
        const Tensor b = random_tensor(tb ? joined(c.b, c.n, c.k) : joined(c.b, c.k, c.n), DType::float64, 2);
        INFO(a.shape() << (ta ? "^T " : " ") << b.shape() << (tb ? "^T" : ""));
        CHECK_GRADIENT([=](const auto& in) { return matmul(in[0], in[1], ta, tb); }, a, b);
      }
  CHECK_GRADIENT([](const auto& in) { return matmul(in[0], in[0]); }, random_tensor({3, 3}));
  CHECK_GRADIENT([](const auto& in) { return matmul(in[0], in[0], true, false); }, random_tensor({2, 3}));
}

TEST_CASE("gradient of linear, with a bias and without, of a single row, and of nothing", "[matmul][grad]") {
  for (const Shape& leading : {Shape{}, Shape{3}, Shape{2, 2}, Shape{0}})
    for (int64_t in : {0, 3})
      for (int64_t out : {0, 2}) {
        Shape shape = leading;
        shape.push_back(in);
        INFO(shape << " to " << out);
        const Tensor x = random_tensor(shape), w = random_tensor({out, in}, DType::float64, 2),
                     b = random_tensor({out}, DType::float64, 3);
        CHECK_GRADIENT([](const auto& v) { return linear(v[0], v[1], v[2]); }, x, w, b);
        CHECK_GRADIENT([](const auto& v) { return linear(v[0], v[1], {}); }, x, w);
      }
}

TEST_CASE("products give the same bits on any number of threads", "[matmul]") {
  const Tensor a = random_tensor({1031, 67}, DType::float32), b = random_tensor({67, 1601}, DType::float32);
  const Tensor batch = random_tensor({5, 131, 67}, DType::float32), deep = random_tensor({2000, 67}, DType::float32);
  check_any_threads([&] {
    return std::vector<Tensor>{matmul(a, b), matmul(a, a, true, false), matmul(batch, batch, false, true),
                               matmul(batch, b), matmul(deep, deep, true, false)};
  });
}

TEST_CASE("matmul and linear refuse what they cannot compute", "[matmul]") {
  const Tensor a({2, 3}), b({3, 4});
  CHECK_ERROR(matmul(Tensor(), b), "matmul: the first operand was never given a value");
  CHECK_ERROR(matmul(a, b.cast(DType::float64)), "matmul: the second operand is float64, the first operand is float32");
  CHECK_ERROR(matmul(a.cast(DType::int32), b), "matmul: the first operand must be floating, got int32");
  CHECK_ERROR(matmul(a, elsewhere({3, 0})), "matmul: the second operand is on cuda, the first operand on cpu");
  CHECK_ERROR(matmul(a, a), "matmul: [2, 3] and [2, 3] do not match: inner sizes 3 and 2");
  CHECK_ERROR(matmul(a, b, true), "matmul: [2, 3] transposed and [3, 4] do not match: inner sizes 2 and 3");
  CHECK_ERROR(matmul(a, b, false, true), "matmul: [2, 3] and [3, 4] transposed do not match: inner sizes 3 and 4");
  CHECK_ERROR(matmul(Tensor({3}), b), "matmul: expected the first operand of shape [..., I, J], got [3]");
  CHECK_ERROR(matmul(Tensor({5, 2, 3}), Tensor({4, 3, 4})), "matmul: leading axes of [5, 2, 3] and [4, 3, 4] differ");
  CHECK_ERROR(linear(Tensor(), a, {}), "linear: x was never given a value");
  CHECK_ERROR(linear(a, Tensor({3}), {}), "linear: expected weight of shape [O, 3], got [3]");
  CHECK_ERROR(linear(a, b, {}), "linear: expected weight of shape [O, 3], got [3, 4]");
  CHECK_ERROR(linear(Tensor(Shape{}), b, {}), "linear: expected x of shape [..., I], got []");
  CHECK_ERROR(linear(a, Tensor({4, 3}), Tensor({3})), "linear: expected bias of shape [4], got [3]");
  CHECK_ERROR(linear(a, Tensor({4, 3}), Tensor({4}, DType::float64)), "linear: bias is float64, x is float32");
  const Tensor cuda = elsewhere({0, 0});
  CHECK_NEEDS_CUDA(matmul(cuda, cuda), "matmul");
}

#if CAIRN_HAS_CUDA  // against the CPU

namespace {

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
  check_products<float>(tolerance::float32, on_device<float>);
  check_products<float>(tolerance::bfloat16, on_device<bfloat16>);
}

TEST_CASE("matrix products on CUDA may share an operand between the members of a batch", "[gpu]") {
  Gemm g = spacious(9, 8, 7, false, false, 3, 1, 0);
  g.stride_b = 0;
  const auto a = numbers<float>(9, 7, g.lda, 3, g.stride_a, 1), b = numbers<float>(7, 8, g.ldb, 1, 7 * g.ldb, 2);
  const std::vector<float> c(size_t(3 * g.stride_c), NAN);
  CHECK(difference(on_device<float>(g, a, b, c), reference_gemm(g, a, b, c)) <= tolerance::float32);
  CHECK(difference(on_device<bfloat16>(g, a, b, c), reference_gemm(g, a, b, c)) <= tolerance::bfloat16);
}

TEST_CASE("products of float32 on CUDA may be of operands rounded to TF32", "[gpu]") {
  const Gemm g = spacious(64, 64, 128, false, true, 1, 1, 0);
  const auto a = numbers<float>(64, 128, g.lda, 1, g.stride_a, 1), b = numbers<float>(64, 128, g.ldb, 1, g.stride_b, 2);
  const std::vector<float> c(size_t(g.stride_c), NAN);
  set_float32_products(Float32Products::tf32);
  const auto y = on_device<float>(g, a, b, c);
  set_float32_products(Float32Products::full);
  CHECK(difference(y, reference_gemm(g, a, b, c)) <= tolerance::float32);  // bfloat16 operands are exact in TF32
}

PARITY("matmul") {
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
        cases.add(label("matmul", a) + (ta ? "^T" : "") + " and " + to_string(b) + (tb ? "^T" : ""),
                  [=, a = a, b = b](const Bench& bench) -> Results {
                    const auto swapped = [](const Shape& x, bool swap) {
                      return swap ? x.with(-1, x[-2]).with(-2, x[-1]) : x;
                    };
                    const Variable x = bench.variable(bench.normal(swapped(a, ta))),
                                   y = bench.variable(bench.normal(swapped(b, tb), 2));
                    return with_gradients(bench, matmul(x, y, ta, tb), {{"x", x}, {"y", y}});
                  });
  for (const auto& [x, out] : std::vector<std::pair<Shape, int64_t>>{
           {{7}, 5}, {{1, 1}, 1}, {{3, 5, 33}, 17}, {{0, 4}, 3}, {{4, 0}, 3}, {{4, 3}, 0}, {{129, 67}, 65}})
    cases.add(label("linear", x) + " to " + std::to_string(out), [x = x, out = out](const Bench& bench) {
      const Variable input = bench.variable(bench.normal(x)), weight = bench.variable(bench.normal({out, x[-1]}, 2)),
                     bias = bench.variable(bench.normal({out}, 3));
      Results results =
          with_gradients(bench, linear(input, weight, bias), {{"input", input}, {"weight", weight}, {"bias", bias}});
      results.push_back({"without bias", linear(input, weight, {}).value()});
      return results;
    });
}

#endif
