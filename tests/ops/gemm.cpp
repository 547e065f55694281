#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/cpu/gemm.h"
#include "tests/ops/operation.h"

namespace {

Shape joined(const Shape& leading, int64_t rows, int64_t cols) {
  Shape shape = leading;
  shape.push_back(rows);
  shape.push_back(cols);
  return shape;
}

Case& add_product(Operation& op, const Shape& a, const Shape& b, bool ta, bool tb) {
  Case& test = op.add(concat(a, ta ? "^T" : "", " and ", b, tb ? "^T" : ""), {normal(a), normal(b, 2)});
  test.forward = [=](const Variables& t) { return Variables{matmul(t[0], t[1], ta, tb)}; };
  test.reference = [=](const Tensors& t) {
    const Shape& leading = t[0].rank() >= t[1].rank() ? t[0].shape() : t[1].shape();
    const Shape shape = leading.with(-1, t[1].size(tb ? -2 : -1)).with(-2, t[0].size(ta ? -1 : -2));
    return Tensors{from_doubles(reference_matmul(t[0], t[1], ta, tb), shape)};
  };
  return test;
}

}  // namespace

OPERATION("matmul") {
  op.takes = {{"the first operand", "*A I J"}, {"the second operand", "*B K L"}};
  op.backward_reads = {0, 1};
  op.gradients_round_once = false;
  op.cublas_order = true;
  // Leading axes of both, and m, n, k.
  const struct {
    Shape a, b;
    int64_t m, n, k;
    bool on_cuda = true;
  } sizes[] = {
      {{}, {}, 3, 5, 7},
      {{}, {}, 1, 1, 1},
      {{}, {}, 0, 5, 7},
      {{}, {}, 3, 0, 7},
      {{}, {}, 3, 5, 0},
      {{4}, {4}, 3, 2, 5},
      {{2, 3}, {2, 3}, 4, 3, 2},
      {{4}, {}, 3, 2, 5},
      {{2, 3}, {}, 5, 3, 2},
      {{}, {4}, 3, 2, 5},
      {{}, {2, 3}, 3, 2, 5},
      {{0}, {0}, 3, 2, 5},
      {{0}, {}, 3, 2, 5},
      {{2, 0}, {}, 5, 2, 7},
      {{3}, {3}, 2, 2, 0},
      {{3}, {}, 2, 4, 0},
      {{}, {}, 67, 33, 129},
      {{}, {}, 1, 1, 300},
      {{7}, {7}, 31, 31, 65},
      {{}, {}, 1031, 3, 2, false},
      {{}, {}, 2, 1601, 3, false},
      {{}, {}, 67, 131, 257, false},
      {{5}, {5}, 130, 9, 3, false},
      {{2}, {}, 530, 4, 3, false},
      {{}, {}, 120, 500, 700, false},
      {{}, {}, 9, 800, 1100, false},
      {{2}, {2}, 99, 401, 30, false},
      {{20}, {20}, 60, 5, 3, false},
      {{}, {}, 20, 9, 1100, false},
      {{2}, {}, 3, 5, 1031, false},
      {{}, {3}, 3, 5, 1600, false},
      {{}, {}, 300, 900, 0, false},
      {{}, {}, 200, 2000, 3, false},
  };
  for (const auto& [a, b, m, n, k, on_cuda] : sizes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        add_product(op, ta ? joined(a, k, m) : joined(a, m, k), tb ? joined(b, n, k) : joined(b, k, n), ta, tb)
            .on_cuda = on_cuda;
  op.forward = [](const Variables& t) { return Variables{matmul(t[0], t[1])}; };
  op.refuses({Tensor({2, 3}), Tensor({2, 3})}, "matmul: [2, 3] and [2, 3] do not match: inner sizes 3 and 2");
  op.refuses({Tensor({5, 2, 3}), Tensor({4, 3, 4})}, "matmul: leading axes of [5, 2, 3] and [4, 3, 4] differ");
}

OPERATION("linear") {
  op.takes = {{"x", "*R I"}, {"weight", "O I"}, {"bias", "O", Taken::optional}};
  op.backward_reads = {0, 1};
  op.gradients_round_once = false;
  op.cublas_order = true;
  op.forward = [](const auto& t) { return Variables{linear(t[0], t[1], wide(t[2])), linear(t[0], wide(t[1]), {})}; };
  op.reference = [](const Tensors& t) {
    const Tensor rows = t[0].reshape({t[0].shape().without(-1).elements(), t[0].size(-1)});
    const auto product = reference_matmul(rows, t[1], false, true), bias = as_double(t[2]);
    const Shape shape = t[0].shape().with(-1, t[1].size(0));
    auto sum = product;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += bias[i % bias.size()];
    return Tensors{from_doubles(sum, shape), from_doubles(product, shape)};
  };
  const auto add = [&op](const Shape& leading, int64_t in, int64_t out) -> Case& {
    const Shape x = appended(leading, in);
    return op.add(concat(x, " to ", out), {normal(x), normal({out, in}, 2), normal({out}, 3)});
  };
  for (const Shape& leading : {Shape{7}, Shape{}, Shape{1}, Shape{2, 3}, Shape{0}, Shape{2, 0}, Shape{301}})
    for (const int64_t in : {5, 0, 1, 33})
      for (const int64_t out : {4, 0, 1, 17}) add(leading, in, out);
  // More than one part of the rows, the columns, the depth; a split depth.
  for (const Shape& size : {Shape{130, 600, 40}, {110, 3, 450}, {3, 1100, 35}}) add({size[0]}, size[1], size[2]);
  op.refuses({Tensor({2}, DType::bfloat16), Tensor({4, 2}, DType::float64), Tensor({4})},
             "linear: weight is float64, x is bfloat16");
}

TEST_CASE("linear without recording computes the activation as the product ends", "[linear]") {
  const NoGrad no_grad;
  // The last ones: several tiles; a split depth; no depth.
  for (const Shape& size : {Shape{3, 5, 4}, {530, 40, 450}, {3, 1100, 35}, {3, 0, 5}})
    for (const Device device : every_device()) {
      INFO(size << " on " << name(device));
      const auto on_device = [&](const Shape& shape) {
        return Variable(random_tensor(shape, DType::float32).to(device));
      };
      const Variable x = on_device({size[0], size[1]}), weight = on_device({size[2], size[1]}),
                     bias = on_device({size[2]});
      const Tensor found = linear(x, weight, bias, Unary::gelu).value(),
                   expected = gelu(linear(x, weight, bias)).value();
      CHECK(same_bits(found.to(Device::cpu), expected.to(Device::cpu)));
    }
}

TEST_CASE("a row of a product has the same bits for any number of rows", "[matmul]") {
  const Tensor x = random_tensor({700, 1600}, DType::float32, 1), b = random_tensor({1600, 40}, DType::float32, 2);
  const Tensor whole = matmul(x, b).value();
  for (const int64_t rows : {1, 15, 390}) CHECK(same_bits(matmul(x.slice(0, rows), b).value(), whole.slice(0, rows)));
}

namespace {

// gemm_tile on parts of wider matrices: it reads and writes only its parts.
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
  std::vector<double> expected(c.begin(), c.end());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, &to = expected[size_t(i * ldc + j)];
      for (int64_t l = 0; l < k; ++l)
        sum += double(a[size_t(ta ? l * lda + i : i * lda + l)]) * double(b[size_t(tb ? j * ldb + l : l * ldb + j)]);
      to = 0.5 * sum + (beta == 0 ? 0 : beta * to);
    }
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

TEST_CASE("a product with itself has both gradients, and another transpose another message", "[matmul][grad]") {
  CHECK_GRADIENT([](const auto& in) { return matmul(in[0], in[0]); }, random_tensor({3, 3}));
  CHECK_GRADIENT([](const auto& in) { return matmul(in[0], in[0], true, false); }, random_tensor({2, 3}));
  const Tensor a({2, 3}), b({3, 4}), cuda = elsewhere({0, 0});
  CHECK_ERROR(matmul(a, b, true), "matmul: [2, 3] transposed and [3, 4] do not match: inner sizes 2 and 3");
  CHECK_ERROR(matmul(a, b, false, true), "matmul: [2, 3] and [3, 4] transposed do not match: inner sizes 3 and 4");
  CHECK_NEEDS_CUDA(matmul(cuda, cuda), "matmul");
}

#if CAIRN_HAS_CUDA

TEST_CASE("products of float32 on CUDA may be of operands rounded to TF32", "[gpu]") {
  const auto exact = [](const Shape& shape) {  // numbers of bfloat16 are exact in TF32
    return random_tensor(shape, DType::float32).cast(DType::bfloat16).cast(DType::float32);
  };
  const Tensor a = exact({64, 128}), b = exact({64, 128});
  set_float32_products(Float32Products::tf32);
  const Tensor y = matmul(a.to(Device::cuda), b.to(Device::cuda), false, true).value();
  set_float32_products(Float32Products::full);
  CHECK(difference(y, reference_matmul(a, b, false, true)) <= tolerance::float32);
}

TEST_CASE("gradients of float32 parameters beside bfloat16 are not rounded", "[gpu][linear]") {
  const auto run = [](Device device, DType activations) {
    const auto make = [=](const Shape& shape, uint64_t seed, DType dtype = DType::float32) {
      return Variable(random_integers(shape, -200, 200, dtype, seed).to(device), true);  // exact in bfloat16
    };
    const Variables p = {make({16, 40}, 1), make({16}, 2), make({40}, 3), make({40}, 4)};
    const Variable x = make({67, 40}, 5, activations);
    backward(linear(x, p[0], p[1]), make({67, 16}, 6, activations));
    backward(layer_norm(x, p[2], p[3]), x);
    return p;
  };
  const Variables found = run(Device::cuda, DType::bfloat16), expected = run(Device::cpu, DType::float32);
  for (size_t i = 0; i < 4; ++i) CHECK(difference(found[i].grad(), expected[i].grad()) <= tolerance::float32);
}

#endif
