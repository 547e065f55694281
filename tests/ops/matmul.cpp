#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/cpu/gemm.h"

#include "tests/ops/ops_test.h"

namespace {

// op(a) op(b) of one pair of matrices; a is stored [m, k] or [k, m], b [k, n] or [n, k].
void reference(const double* a, const double* b, int64_t m, int64_t n, int64_t k, bool ta, bool tb, double* c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
      c[i * n + j] = sum;
    }
}

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
          const auto x = as_double(a), y = as_double(b);
          std::vector<double> expected(size_t(leading.elements() * c.m * c.n));
          for (int64_t batch = 0; batch < leading.elements(); ++batch)
            reference(x.data() + (c.a.rank() ? batch * c.m * c.k : 0), y.data() + (c.b.rank() ? batch * c.n * c.k : 0),
                      c.m, c.n, c.k, ta, tb, expected.data() + batch * c.m * c.n);
          const Tensor result = matmul(a, b, ta, tb);
          CHECK(result.shape() == joined(leading, c.m, c.n));
          CHECK(difference(result, expected) <= tolerance_of(dtype));
        }
}

TEST_CASE("gemm scales, adds onto C, and reads no C where beta is 0", "[matmul]") {
  const Tensor a = random_tensor({3, 5}), b = random_tensor({5, 4}), c = random_tensor({3, 4}, DType::float64, 3);
  Gemm g{3, 4, 5, false, false, 5, 4, 4, 2.0, -0.5};
  Tensor out = c.clone();
  cpu::gemm<double>({}, g, a.data<double>(), b.data<double>(), out.mutable_data<double>());
  const Tensor expected = binary(Binary::add, affine(matmul(a, b), 2), affine(c, -0.5));
  CHECK(difference(out, expected) <= tolerance::float64);
  g.beta = 0;
  out = Tensor::full({3, 4}, NAN, DType::float64);
  cpu::gemm<double>({}, g, a.data<double>(), b.data<double>(), out.mutable_data<double>());
  CHECK(difference(out, affine(matmul(a, b), 2)) <= tolerance::float64);
  // The same where the depth is shared out.
  const Tensor long_a = random_tensor({3, 1500}), long_b = random_tensor({1500, 4});
  const Gemm deep{3, 4, 1500, false, false, 1500, 4, 4, 2.0, -0.5};
  out = c.clone();
  cpu::gemm<double>({}, deep, long_a.data<double>(), long_b.data<double>(), out.mutable_data<double>());
  const Tensor sum = binary(Binary::add, affine(matmul(long_a, long_b), 2), affine(c, -0.5));
  CHECK(difference(out, sum) <= tolerance::float64);
  // k = 0 gives beta C.
  g.k = 0, g.beta = 3;
  out = c.clone();
  cpu::gemm<double>({}, g, a.data<double>(), b.data<double>(), out.mutable_data<double>());
  CHECK(difference(out, affine(c, 3)) <= tolerance::float64);
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
  cpu::gemm_tile<T>(ta, tb, m, n, k, 0.5, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
  double largest = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      double expected = j < n ? (beta == 0 ? 0 : beta * double(i - j)) : 7;
      for (int64_t l = 0; l < k && j < n; ++l)
        expected +=
            0.5 * double(a[size_t(ta ? l * lda + i : i * lda + l)]) * double(b[size_t(tb ? j * ldb + l : l * ldb + j)]);
      const double error = std::abs(double(c[size_t(i * ldc + j)]) - expected) / std::max(1.0, std::abs(expected));
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
            std::vector<double> expected(size_t(leading.elements() * out));
            const auto values = as_double(x), w = as_double(weight);
            reference(values.data(), w.data(), leading.elements(), out, in, false, true, expected.data());
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
  CHECK_ERROR(matmul(Tensor({3}), b), "matmul: expected matrices, got shapes [3] and [3, 4]");
  CHECK_ERROR(matmul(Tensor({5, 2, 3}), Tensor({4, 3, 4})), "matmul: leading axes of [5, 2, 3] and [4, 3, 4] differ");
  CHECK_ERROR(linear(Tensor(), a, {}), "linear: x was never given a value");
  CHECK_ERROR(linear(a, Tensor({3}), {}), "linear: expected a weight [out, in], got [3]");
  CHECK_ERROR(linear(a, b, {}), "linear: x of shape [2, 3] has 3 features, weight of shape [3, 4] expects 4");
  CHECK_ERROR(linear(Tensor(Shape{}), b, {}), "linear: expected at least one axis, got a scalar");
  CHECK_ERROR(linear(a, Tensor({4, 3}), Tensor({3})), "linear: expected bias of shape [4], got [3]");
  CHECK_ERROR(linear(a, Tensor({4, 3}), Tensor({4}, DType::float64)), "linear: bias is float64, x is float32");
  const Tensor cuda = elsewhere({0, 0});
  CHECK_NEEDS_CUDA(matmul(cuda, cuda), "matmul");
}
