// The bytes are a program of public operations: which one, with operands of which shapes, types, devices and values.
// Most operands fit; some are undefined, of another type, device or size, huge, or were saved by another call. Each
// call ends with a cairn::Error, or with what the formula gives in double (single elements and rows, products,
// attention, segments, sorting), or else (gradients, clustering and the attention of clusters and buckets) with results
// of the documented shape and type that are finite where the operands are small, and with labels and keys that there
// are.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/attention_ops.h"
#include "core/ops.h"
#include "core/parallel.h"
#include "nn/purpose.h"
#include "tests/fuzz/fuzz.h"
#include "tests/tolerances.h"

using namespace cairn;

namespace {

#if CAIRN_HAS_CUDA
constexpr bool has_cuda = true;
#else
constexpr bool has_cuda = false;
#endif

using Numbers = std::vector<double>;

Numbers numbers(const Tensor& x) { return x.to(Device::cpu).cast(DType::float64).to_vector<double>(); }

// Not more elements than are worth looking at.
bool few(const Tensor& x) { return x.elements() <= 1 << 16; }

// All finite and at most 4: then float32 neither overflows nor loses more than its tolerance.
bool small(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) return true;
  if (!few(x)) return false;
  const Numbers values = numbers(x);
  return std::all_of(values.begin(), values.end(), [](double v) { return std::abs(v) <= 4; });
}

double tolerance_of(DType dtype) {
  return dtype == DType::float64   ? tolerance::float64
         : dtype == DType::float32 ? tolerance::float32
                                   : tolerance::bfloat16;
}

// What f gives, or nothing where it refuses.
template <class F>
auto attempt(F&& f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const Error& error) {
    expect_short_line(error.what());
    return std::nullopt;
  }
}

void expect_result(const Tensor& y, const Shape& shape, const Tensor& like) {
  expect(y.defined() && y.shape() == shape, "a result of another shape");
  expect(y.dtype() == like.dtype() && y.device() == like.device(), "a result of another type or device");
}
void expect_numbers(const Tensor& y, const Shape& shape, const Tensor& like, const Numbers& expected) {
  expect_result(y, shape, like);
  expect(difference(numbers(y), expected) <= tolerance_of(y.dtype()), "a result that is not the formula's");
}
// Finite, if `known`: the operands are small and what was saved belongs to them.
void expect_finite(const Tensor& y, const Shape& shape, const Tensor& like, bool known) {
  expect_result(y, shape, like);
  if (!known || !few(y)) return;
  for (const double value : numbers(y)) expect(std::isfinite(value), "a result that is not finite");
}
// Whole numbers in [low, high).
void expect_whole(const Tensor& y, const Shape& shape, double low, double high) {
  expect(y.dtype() == DType::int32 && y.shape() == shape, "whole numbers of another shape");
  if (!few(y)) return;
  for (const double value : numbers(y)) expect(value >= low && value < high, "a label or key that there is not");
}

// ---- formulas, in double

// f(where in the whole, where in a part that broadcasts to it).
template <class F>
void each_broadcast(const Shape& whole, const Shape& part, F&& f) {
  for (int64_t i = 0; i < whole.elements(); ++i) {
    int64_t rest = i, place = 0, stride = 1;
    for (int axis = 1; axis <= whole.rank(); ++axis) {
      const int64_t at = rest % whole[-axis], size = axis <= part.rank() ? part[-axis] : 1;
      rest /= whole[-axis];
      place += (size == 1 ? 0 : at) * stride, stride *= size;
    }
    f(size_t(i), size_t(place));
  }
}
Numbers broadcasted(const Tensor& x, const Shape& shape) {
  const Numbers from = numbers(x);
  Numbers to(size_t(shape.elements()));
  each_broadcast(shape, x.shape(), [&](size_t i, size_t place) { to[i] = from[place]; });
  return to;
}

double formula(Unary op, double x) {
  switch (op) {
    case Unary::negate: return -x;
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::sqrt: return std::sqrt(x);
    case Unary::square: return x * x;
    case Unary::relu: return x < 0 ? 0 : x;
    case Unary::gelu: return x * std::erfc(-x / std::sqrt(2)) / 2;
  }
  return 0;
}
double formula(Binary op, double a, double b) {
  return op == Binary::add ? a + b : op == Binary::subtract ? a - b : op == Binary::multiply ? a * b : a / b;
}

// op(a) op(b) for matrices with equal leading axes or without.
Numbers product(const Tensor& a, const Tensor& b, bool ta, bool tb, const Shape& shape) {
  const Numbers x = numbers(a), y = numbers(b);
  Numbers result(size_t(shape.elements()));
  const int64_t m = shape[-2], n = shape[-1], k = a.size(ta ? -2 : -1);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const int64_t member = i / (m * n), row = i / n % m, col = i % n;
    const int64_t of_a = a.rank() == 2 ? 0 : member * m * k, of_b = b.rank() == 2 ? 0 : member * k * n;
    for (int64_t l = 0; l < k; ++l)
      result[size_t(i)] +=
          x[size_t(of_a + (ta ? l * m + row : row * k + l))] * y[size_t(of_b + (tb ? col * k + l : l * n + col))];
  }
  return result;
}

Numbers softmax_of_rows(const Tensor& x) {
  Numbers y = numbers(x);
  const size_t cols = size_t(x.size(-1));
  for (size_t first = 0; first < y.size(); first += cols) {
    const auto row = y.begin() + int64_t(first), end = row + int64_t(cols);
    const double maximum = *std::max_element(row, end);
    double sum = 0;
    for (auto at = row; at != end; ++at) sum += * at = std::exp(*at - maximum);
    for (auto at = row; at != end; ++at) *at /= sum;
  }
  return y;
}

// Which keys a query sees, of a mask whose tensors are read once.
struct Visible {
  const AttentionMask& mask;
  Shape full;  // [B, H, N, S]
  Numbers query_lengths, key_lengths, allowed;

  Visible(const AttentionMask& of, const Shape& shape) : mask(of), full(shape) {
    if (mask.query_lengths.defined()) query_lengths = numbers(mask.query_lengths);
    if (mask.key_lengths.defined()) key_lengths = numbers(mask.key_lengths);
    if (mask.allowed.defined()) allowed = broadcasted(mask.allowed, full);
  }
  bool operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!query_lengths.empty() && double(i) >= query_lengths[size_t(b)]) return false;
    if (!key_lengths.empty() && double(j) >= key_lengths[size_t(b)]) return false;
    const auto [window, stride, global] = mask.pattern;
    const int64_t distance = std::abs(i - j);
    if (mask.causal && j > i) return false;
    if (window >= 0 && distance > window && std::min(i, j) >= global && (stride == 0 || distance % stride))
      return false;
    return allowed.empty() || allowed[size_t(((b * full[1] + h) * full[2] + i) * full[3] + j)] != 0;
  }
};

Numbers formula_of_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3), S = k.size(1), M = v.size(3);
  const Numbers x = numbers(q), y = numbers(k), z = numbers(v);
  const Visible visible(options.mask, {B, H, N, S});
  const double scale = options.scale != 0 ? options.scale : D > 0 ? 1 / std::sqrt(double(D)) : 1;
  Numbers out(size_t(B * N * H * M));
  for (int64_t row = 0; row < B * N * H; ++row) {
    const int64_t b = row / (N * H), i = row / H % N, h = row % H;
    Numbers weights(static_cast<size_t>(S));
    double sum = 0;
    for (int64_t j = 0; j < S; ++j) {
      if (!visible(b, h, i, j)) continue;
      double score = 0;
      for (int64_t d = 0; d < D; ++d) score += x[size_t(row * D + d)] * y[size_t(((b * S + j) * H + h) * D + d)];
      sum += weights[size_t(j)] = std::exp(scale * score);
    }
    for (int64_t j = 0; j < S && sum > 0; ++j)
      for (int64_t m = 0; m < M; ++m)
        out[size_t(row * M + m)] += weights[size_t(j)] / sum * z[size_t(((b * S + j) * H + h) * M + m)];
  }
  return out;
}

// ---- the program

class Program {
 public:
  Program(const uint8_t* data, size_t size) : at_(data), end_(data + size) {
    device_ = has_cuda && one_in(16) ? Device::cuda : Device::cpu;
    dtype_ = device_ == Device::cuda ? pick({DType::float32, DType::bfloat16}) : pick({DType::float32, DType::float64});
    B_ = length(3), N_ = length(100), S_ = length(100), H_ = length(3), D_ = length(20), M_ = length(20);
    C_ = 1 + length(9), top_ = 1 + length(9);
  }

  void run() {
    for (int calls = 0; at_ < end_ && calls < 12; ++calls) {
      known_ = true;
      switch (byte() % 24) {
        case 0: elements(); break;
        case 1: pairs(); break;
        case 2: reductions(); break;
        case 3: products(); break;
        case 4: biases(); break;
        case 5: softmaxes(); break;
        case 6: layer_norms(); break;
        case 7: dropouts(); break;
        case 8: table_rows(); break;
        case 9: losses(); break;
        case 10: sorting(); break;
        case 11: tensors(); break;
        case 12:
        case 13: full_attention(); break;
        case 14: hashing(); break;
        case 15: grouping(); break;
        case 16: segments(); break;
        case 17:
        case 18: centroids(); break;
        case 19:
        case 20: top_keys(); break;
        case 21: linear(); break;
        default: buckets();
      }
    }
  }

 private:
  uint8_t byte() { return at_ < end_ ? *at_++ : 0; }
  bool one_in(int n) { return byte() % n == 1; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[byte() % values.size()];
  }
  int64_t length(int64_t maximum) {
    return std::min<int64_t>(maximum, pick<int64_t>({2, 1, 3, 5, 1, 8, 2, 17, 3, 33, 4, 0, 70, 6, 7, 100}));
  }
  // A number that no size, count or index should be.
  int64_t odd() {
    constexpr int64_t maximum = std::numeric_limits<int64_t>::max();
    return pick<int64_t>({0, -1, 259, int64_t{1} << 31, int64_t{1} << 41, int64_t{1} << 62, maximum - 1, maximum,
                          std::numeric_limits<int64_t>::min(), -maximum});
  }
  int64_t count(int64_t usual) { return one_in(16) ? odd() : usual; }
  double real(double usual) { return one_in(16) ? pick<double>({-1, NAN, INFINITY, 1e300, 1, 1e-40}) : usual; }

  // A shape with one axis that is odd, and perhaps another that is empty.
  Shape odd_shape(const Shape& shape) {
    if (shape.rank() == 0) return {count(2)};
    Shape other = shape.with(byte() % shape.rank(), odd());
    if (one_in(2)) other = other.with(byte() % shape.rank(), 0);
    return other;
  }

  // Numbers of `shape`: multiples of 1/4 in [-2, 2), or whole ones in [low, high).
  Tensor made(const Shape& shape, DType dtype, int64_t low, int64_t high) {
    if (shape.elements() > 1 << 16)
      return Tensor::zeros(shape, dtype, device_);  // too large to be used, or for the memory
    Tensor x(shape, DType::float64);
    uint32_t random = byte();
    for (int64_t i = 0; i < x.elements(); ++i) {
      random = random * 1664525 + 1013904223;
      const int64_t steps = is_floating(dtype) ? 16 : std::max<int64_t>(1, high - low);
      const double step = double((random >> 8) % uint64_t(steps));
      x.mutable_data<double>()[i] = is_floating(dtype) ? (step - 8) / 4 : double(low) + step;
    }
    return x.cast(dtype).to(device_);
  }
  // An operand as it should be, or not.
  Tensor operand(const Shape& shape, DType dtype, int64_t low = 0, int64_t high = 1) {
    if (!one_in(12)) return made(shape, dtype, low, high);
    switch (byte() % 8) {
      case 0: return {};
      case 1:
        return made(
            shape, pick({DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::uint64, DType::boolean}),
            low, high);
      case 2: return made(odd_shape(shape), dtype, low, high);
      case 3: return made({shape.elements()}, dtype, low, high);
      case 4: return made(shape, dtype, low - 3, high + 3);
      case 5: return Tensor::zeros(shape, dtype, device_ == Device::cpu && has_cuda ? Device::cuda : Device::cpu);
      case 6: return rank_changed(made(shape, dtype, low, high));
      default: {
        Tensor x = made(shape, dtype, low, high);
        if (!is_floating(dtype) || x.elements() == 0) return x;
        return affine_of(x, pick<double>({NAN, INFINITY, 1e30, 1e-30}));
      }
    }
  }
  Tensor operand(const Shape& shape) { return operand(shape, dtype_); }
  static Tensor affine_of(const Tensor& x, double factor) {
    return binary(Binary::multiply, x.to(Device::cpu).cast(DType::float64), Tensor::full({}, factor, DType::float64))
        .cast(x.dtype())
        .to(x.device());
  }
  static Tensor rank_changed(const Tensor& x) {
    if (x.rank() == max_rank) return x.reshape({x.elements()});
    Shape longer = x.shape();
    longer.push_back(1);
    return x.reshape(longer);
  }
  // What this call saved, or what another one did.
  template <class Saved>
  Saved saved(const Saved& own, std::vector<Saved>& others) {
    others.push_back(own);
    if (!one_in(4)) return own;
    known_ = false;
    return others[byte() % others.size()];
  }
  Tensor saved_tensor(const Tensor& own) {
    if (!one_in(16)) return own;
    known_ = false;
    return one_in(2) ? Tensor() : operand(odd_shape({3, 2}), own.dtype());
  }
  RandomDraw draw() {
    static const Generator here(1), there(1, has_cuda ? Device::cuda : Device::cpu);
    RandomDraw result = (device_ == Device::cpu ? here : there).draw(byte(), Purpose::test);
    if (one_in(16)) result.state = operand({2}, DType::uint64, 0, 9);
    return result;
  }
  bool is_small(std::initializer_list<Tensor> operands) const {
    return known_ && std::all_of(operands.begin(), operands.end(), small);
  }

  Shape some_shape() {
    const int rank = byte() % 4;
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(length(33));
    return shape;
  }

  // ---- operations

  void elements() {
    const Unary op =
        pick({Unary::negate, Unary::exp, Unary::log, Unary::sqrt, Unary::square, Unary::relu, Unary::gelu});
    const Tensor x = operand(some_shape());
    const double alpha = real(0.5), beta = real(-0.25);
    if (const auto y = attempt([&] { return unary(op, x); }); y && small(x)) {
      Numbers expected = numbers(x);
      for (double& value : expected) value = formula(op, value);
      expect_numbers(*y, x.shape(), x, expected);
    }
    if (const auto y = attempt([&] { return affine(x, alpha, beta); }); y && small(x) && std::abs(alpha) <= 4) {
      Numbers expected = numbers(x);
      for (double& value : expected) value = alpha * value + beta;
      if (std::abs(beta) <= 4) expect_numbers(*y, x.shape(), x, expected);
    }
    const Tensor dy = operand(x.shape());
    if (const auto dx = attempt([&] { return unary_backward(op, x, dy); })) expect_result(*dx, x.shape(), x);
  }

  void pairs() {
    const Binary op = pick({Binary::add, Binary::subtract, Binary::multiply, Binary::divide});
    const Shape shape = some_shape();
    Shape other;
    for (int64_t size : shape) other.push_back(one_in(3) ? 1 : size);
    const Tensor a = operand(shape), b = operand(one_in(3) && other.rank() > 0 ? other.without(0) : other);
    if (const auto y = attempt([&] { return binary(op, a, b); })) {
      const Shape both = broadcast(a.shape(), b.shape(), "");
      const Numbers x = broadcasted(a, both), z = broadcasted(b, both);
      Numbers expected(x.size());
      for (size_t i = 0; i < x.size(); ++i) expected[i] = formula(op, x[i], z[i]);
      if (is_small({a, b})) expect_numbers(*y, both, a, expected);
    }
    Tensor sum = operand(a.shape());
    attempt([&] { return accumulate(sum, a, real(2)), 0; });
    if (const auto y = attempt([&] { return broadcast_to(b, a.shape()); }); y && is_small({b}))
      expect_numbers(*y, a.shape(), b, broadcasted(b, a.shape()));
    if (const auto y = attempt([&] { return sum_to(a, b.shape()); }); y && is_small({a})) {
      Numbers expected(size_t(b.shape().elements()));
      const Numbers from = numbers(a);
      each_broadcast(a.shape(), b.shape(), [&](size_t i, size_t place) { expected[place] += from[i]; });
      expect_numbers(*y, b.shape(), a, expected);
    }
  }

  void reductions() {
    const Tensor x = operand(some_shape());
    const int axis = one_in(8) ? int(odd()) : int(byte() % 4) - 2;
    const Reduce op = pick({Reduce::sum, Reduce::max});
    if (const auto y = attempt([&] { return reduce(op, x, axis); })) {
      const Shape shape = x.shape().without(axis), mixed = x.shape().with(axis, 1);
      Numbers expected(size_t(shape.elements()), op == Reduce::sum ? 0 : -INFINITY);
      const Numbers from = numbers(x);
      each_broadcast(x.shape(), mixed, [&](size_t i, size_t place) {
        expected[place] = op == Reduce::sum ? expected[place] + from[i] : std::max(expected[place], from[i]);
      });
      if (is_small({x})) expect_numbers(*y, shape, x, expected);
    }
    attempt([&] { return sum_all(x); });
  }

  void products() {
    const bool ta = one_in(2), tb = one_in(2);
    const int64_t m = length(40), k = length(70), n = length(40), members = length(3);
    Shape of_a = ta ? Shape{k, m} : Shape{m, k}, of_b = tb ? Shape{n, k} : Shape{k, n};
    const int leading = byte() % 4;
    if (leading & 1) of_a = {members, of_a[0], of_a[1]};
    if (leading & 2) of_b = {members, of_b[0], of_b[1]};
    const Tensor a = operand(of_a), b = operand(of_b), bias = one_in(2) ? operand({n}) : Tensor();
    if (const auto y = attempt([&] { return matmul(a, b, ta, tb); }); y && is_small({a, b}))
      expect_numbers(*y, y->shape(), a, product(a, b, ta, tb, y->shape()));
    if (const auto y = attempt([&] { return ::linear(a, b, bias); }); y && is_small({a, b, bias})) {
      const Tensor rows = a.reshape({a.shape().without(-1).elements(), a.size(-1)});
      Numbers expected = product(rows, b, false, true, {rows.size(0), b.size(0)});
      const Numbers add = bias.defined() ? numbers(bias) : Numbers{};
      for (size_t i = 0; i < expected.size() && !add.empty(); ++i) expected[i] += add[i % add.size()];
      expect_numbers(*y, a.shape().with(-1, b.size(0)), a, expected);
    }
  }

  void biases() {
    const Shape shape = some_shape();
    const Tensor x = operand(shape), bias = operand({shape.rank() ? shape[-1] : 1}), dy = operand(shape);
    const Activation f = pick({Activation::gelu, Activation::relu});
    if (const auto y = attempt([&] { return bias_activation(x, bias, f); }); y && is_small({x, bias})) {
      Numbers expected = broadcasted(bias, x.shape());
      const Numbers add = numbers(x);
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] = formula(f == Activation::gelu ? Unary::gelu : Unary::relu, expected[i] + add[i]);
      expect_numbers(*y, x.shape(), x, expected);
    }
    if (const auto dx = attempt([&] { return bias_activation_backward(x, bias, f, dy); }))
      expect_finite(*dx, x.shape(), x, is_small({x, bias, dy}));
  }

  void softmaxes() {
    const Tensor x = operand(some_shape());
    if (const auto y = attempt([&] { return softmax(x); })) {
      if (is_small({x})) expect_numbers(*y, x.shape(), x, softmax_of_rows(x));
      const Tensor dy = operand(x.shape());
      if (const auto dx = attempt([&] { return softmax_backward(*y, dy); }))
        expect_finite(*dx, x.shape(), x, is_small({x, dy}));
    }
    if (const auto y = attempt([&] { return l2_normalize(x); })) {
      expect_finite(*y, x.shape(), x, is_small({x}));
      const Tensor dy = operand(x.shape());
      if (const auto dx = attempt([&] { return l2_normalize_backward(x, dy); }))
        expect_finite(*dx, x.shape(), x, is_small({x, dy}));
    }
  }

  void layer_norms() {
    const Shape shape = some_shape();
    const Shape cols{shape.rank() ? shape[-1] : 1};
    const Tensor x = operand(shape), weight = operand(cols), bias = operand(cols), dy = operand(shape);
    const double epsilon = real(0.01);
    const auto forward = attempt([&] { return layer_norm(x, weight, bias, epsilon); });
    if (!forward) return;
    if (is_small({x, weight, bias}) && epsilon == 0.01) {
      Numbers expected = numbers(x);
      const Numbers w = numbers(weight), b = numbers(bias);
      const size_t n = size_t(x.size(-1));
      for (size_t first = 0; first < expected.size(); first += n) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < n; ++i) mean += expected[first + i] / double(n);
        for (size_t i = 0; i < n; ++i) variance += std::pow(expected[first + i] - mean, 2) / double(n);
        for (size_t i = 0; i < n; ++i)
          expected[first + i] = (expected[first + i] - mean) / std::sqrt(variance + epsilon) * w[i] + b[i];
      }
      expect_numbers(forward->y, x.shape(), x, expected);
    }
    LayerNormResult mixed = saved(*forward, layer_norms_);
    mixed.mean = saved_tensor(mixed.mean), mixed.rstd = saved_tensor(mixed.rstd);
    if (const auto g = attempt([&] { return layer_norm_backward(x, weight, mixed, dy); })) {
      const bool known = is_small({x, weight, dy}) && epsilon == 0.01;
      expect_finite(g->dx, x.shape(), x, known);
      expect_finite(g->dweight, weight.shape(), x, known);
      expect_finite(g->dbias, weight.shape(), x, known);
    }
  }

  void dropouts() {
    const Tensor x = operand(some_shape()), residual = operand(x.shape());
    const double p = real(0.5);
    const RandomDraw numbers_of = draw();
    if (const auto y = attempt([&] { return dropout(x, p, numbers_of); }); y && is_small({x}) && p == 0.5) {
      Numbers expected = numbers(x);
      const Numbers got = numbers(*y);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = got[i] == 0 ? 0 : 2 * expected[i];
      expect_numbers(*y, x.shape(), x, expected);
    }
    if (const auto y = attempt([&] { return dropout_add(x, p, numbers_of, residual); }))
      expect_result(*y, x.shape(), x);
  }

  void table_rows() {
    const int64_t n = length(33), cols = length(33);
    const Shape picked = some_shape();
    const Tensor table = operand({n, cols}), index = operand(picked, DType::int32, -1, std::max<int64_t>(n, 0));
    if (const auto y = attempt([&] { return gather_rows(table, index); }); y && is_small({table})) {
      Numbers expected;
      const Numbers from = numbers(table);
      for (const double row : numbers(index))
        for (int64_t c = 0; c < table.size(1); ++c)
          expected.push_back(row < 0 || row >= double(table.size(0)) ? 0
                                                                     : from[size_t(int64_t(row) * table.size(1) + c)]);
      expect_numbers(*y, y->shape(), table, expected);
    }
    Shape rows = picked;
    rows.push_back(cols);
    const Tensor x = operand(rows);
    const int64_t size = count(n);
    if (const auto y = attempt([&] { return scatter_add_rows(x, index, size); })) {
      Numbers expected(size_t(size * x.size(-1)));
      const Numbers from = numbers(x), at = numbers(index);
      for (size_t i = 0; i < from.size(); ++i) {
        const double row = at[i / size_t(x.size(-1))];
        if (row >= 0 && row < double(size))
          expected[size_t(row) * size_t(x.size(-1)) + i % size_t(x.size(-1))] += from[i];
      }
      if (is_small({x})) expect_numbers(*y, {size, x.size(-1)}, x, expected);
    }
  }

  void losses() {
    const Shape rows = some_shape();
    const int64_t classes = length(33);
    Shape shape = rows;
    shape.push_back(classes);
    const Tensor logits = operand(shape), targets = operand(rows, DType::int32, -1, classes), dloss = operand({});
    const auto forward = attempt([&] { return cross_entropy(logits, targets); });
    if (!forward) return;
    if (is_small({logits}) && device_ == Device::cpu) {
      const Numbers p = softmax_of_rows(logits), target = numbers(targets);
      double sum = 0, counted = 0;
      for (size_t r = 0; r < target.size(); ++r)
        if (target[r] >= 0) sum -= std::log(p[r * size_t(logits.size(-1)) + size_t(target[r])]), ++counted;
      expect_numbers(forward->loss, {}, logits, {counted > 0 ? sum / counted : 0});
    }
    CrossEntropy mixed = saved(*forward, losses_);
    mixed.logsumexp = saved_tensor(mixed.logsumexp), mixed.count = saved_tensor(mixed.count);
    if (const auto g = attempt([&] { return cross_entropy_backward(logits, targets, mixed, dloss); }))
      expect_finite(*g, logits.shape(), logits, is_small({logits, dloss}));
  }

  void sorting() {
    const Tensor x = operand(some_shape(), pick({dtype_, DType::int32, DType::int64}), -5, 5);
    const int64_t k = count(length(9));
    const bool known = is_small({x}) && few(x);
    const Numbers of_x = known && x.defined() ? numbers(x) : Numbers{};
    const auto value = [&](const Numbers& columns, size_t i, size_t per_row) {
      return of_x[i / per_row * size_t(x.size(-1)) + size_t(columns[i])];
    };
    if (const auto order = attempt([&] { return stable_sort(x); }); order && known) {
      expect_whole(*order, x.shape(), 0, double(x.size(-1)));
      const Numbers columns = numbers(*order);
      for (size_t i = 1; i < size_t(x.elements()); ++i)
        if (i % size_t(x.size(-1)) != 0)
          expect(value(columns, i - 1, size_t(x.size(-1))) <= value(columns, i, size_t(x.size(-1))), "not sorted");
    }
    if (const auto top = attempt([&] { return top_k(x, k); }); top && known && few(top->values)) {
      expect_whole(top->columns, x.shape().with(-1, k), 0, double(x.size(-1)));
      const Numbers values = numbers(top->values), columns = numbers(top->columns);
      for (size_t i = 0; i < values.size(); ++i) {
        expect(value(columns, i, size_t(k)) == values[i], "a value of another column");
        if (i % size_t(k) != 0) expect(values[i - 1] >= values[i], "not the largest first");
      }
    }
    if (const auto best = attempt([&] { return argmax(x); })) expect_whole(*best, best->shape(), 0, double(x.size(-1)));
  }

  void tensors() {
    const DType from = pick({DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::int64, DType::uint64,
                             DType::uint8, DType::boolean}),
                to = pick({DType::float32, DType::int32, DType::uint64, DType::uint8, DType::boolean, DType::bfloat16});
    Tensor x = operand(some_shape(), from, 0, 2);
    attempt([&] { return x.cast(to); });
    attempt([&] { return Tensor::full(one_in(4) ? odd_shape({2, 3}) : some_shape(), real(1e18), to, device_); });
    attempt([&] { return x.slice(count(0), count(1)); });
    attempt([&] { return x.reshape(one_in(2) ? odd_shape(x.shape()) : Shape{x.elements()}); });
    attempt([&] { return x.item(); });
    attempt([&] { return x.to(Device::cuda).to(Device::cpu).to_vector<float>().size(); });
    const Tensor source = operand(x.shape(), from, 0, 2);
    attempt([&] { return x.copy_from(source), x.clone(); });
    attempt([&] { return Shape{odd(), odd(), odd(), 0, 1}.with(int(odd()), odd()).without(int(odd())).elements(); });
    attempt([&] {
      int64_t seen = 0;
      const int64_t n = length(100), grain = count(7);
      parallel_for(n, grain, [&](int64_t begin, int64_t end) { seen += end - begin; });
      expect(seen == n, "a loop that does not take every index");
      return 0;
    });
  }

  Tensor q_operand() { return operand({B_, N_, H_, D_}); }
  Tensor k_operand() { return operand({B_, S_, H_, D_}); }
  Tensor v_operand() { return operand({B_, S_, H_, M_}); }

  AttentionOptions options() {
    AttentionOptions o;
    if (one_in(4)) o.mask.query_lengths = operand({B_}, DType::int32, 0, N_ + 1);
    if (one_in(4)) o.mask.key_lengths = operand({B_}, DType::int32, 0, S_ + 1);
    if (one_in(6))
      o.mask.allowed =
          operand(pick<Shape>({{N_, S_}, {B_, 1, 1, S_}, {B_, H_, N_, S_}, {H_, 1, S_}}), DType::boolean, 0, 2);
    o.mask.causal = one_in(4);
    if (one_in(6))
      o.mask.pattern = {pick({0, 3, 1 << 30, INT32_MAX}), pick({0, 5, -1, INT32_MAX}), pick({0, 2, INT32_MAX})};
    if (one_in(4)) o.dropout = {real(0.25), draw()};
    if (one_in(8)) o.scale = real(0.5);
    return o;
  }
  // May results be infinite, or not be the formula's?
  static bool usual(const AttentionOptions& o) { return o.dropout.p == 0 && std::abs(o.scale) <= 1; }
  void expect_gradient(const std::optional<AttentionGradient>& g, const Tensor& q, const Tensor& k, const Tensor& v,
                       bool known) {
    if (!g) return;
    expect_finite(g->dq, q.shape(), q, known);
    expect_finite(g->dk, k.shape(), q, known);
    expect_finite(g->dv, v.shape(), q, known);
  }

  void full_attention() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand(), dout = operand({B_, N_, H_, M_});
    const AttentionOptions o = options();
    const auto forward = attempt([&] { return attention(q, k, v, o); });
    if (!forward) return;
    const Shape shape{q.size(0), q.size(1), q.size(2), v.size(3)};
    expect_finite(forward->out, shape, q, is_small({q, k, v}) && usual(o));
    if (is_small({q, k, v}) && usual(o)) expect_numbers(forward->out, shape, q, formula_of_attention(q, k, v, o));
    AttentionResult mixed = saved(*forward, attentions_);
    mixed.out = saved_tensor(mixed.out), mixed.logsumexp = saved_tensor(mixed.logsumexp);
    expect_gradient(attempt([&] { return attention_backward(q, k, v, o, mixed, dout); }), q, k, v,
                    is_small({q, k, v, dout}) && usual(o));
  }

  void linear() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand(), dout = operand({B_, N_, H_, M_});
    const AttentionOptions o = options();
    const auto forward = attempt([&] { return linear_attention(q, k, v, o); });
    if (!forward) return;
    expect_finite(forward->out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, is_small({q, k, v}) && usual(o));
    LinearAttentionResult mixed = saved(*forward, linears_);
    mixed.out = saved_tensor(mixed.out), mixed.denominators = saved_tensor(mixed.denominators);
    expect_gradient(attempt([&] { return linear_attention_backward(q, k, v, o, mixed, dout); }), q, k, v,
                    is_small({q, k, v, dout}) && usual(o));
  }

  void hashing() {
    const Tensor q = q_operand(), lengths = one_in(2) ? operand({B_}, DType::int32, 0, N_ + 1) : Tensor();
    const int bits = one_in(8) ? int(odd()) : 1 + byte() % 64, iterations = one_in(8) ? -1 : byte() % 4;
    const int64_t D = count(D_), clusters = count(C_);
    const auto planes = attempt([&] { return random_planes(bits, D, one_in(2), draw(), device_); });
    const auto codes = attempt([&] { return hash_codes(q, planes ? *planes : operand({3, D_ + 1}, DType::float32)); });
    if (codes)
      if (const auto labels =
              attempt([&] { return hamming_kmeans(*codes, lengths, clusters, bits, iterations, draw()); }))
        expect_whole(*labels, codes->shape(), -1, double(clusters));
    if (const auto labels = attempt([&] { return euclidean_kmeans(q, lengths, clusters, iterations, draw()); }))
      expect_whole(*labels, {q.size(0), q.size(2), q.size(1)}, -1, double(clusters));
    if (const auto labels = attempt([&] {
          return position_labels(one_in(8) ? odd_shape({B_, H_, N_}) : Shape{B_, H_, N_}, lengths, clusters, one_in(2),
                                 device_);
        }))
      expect_whole(*labels, labels->shape(), -1, double(clusters));
  }

  // Groups of queries, or those of another call.
  Groups groups(const Shape& shape, int64_t clusters) {
    const Tensor labels = operand(shape, DType::int32, -1, clusters);
    const auto made_now = attempt([&] { return group(labels, count(clusters)); });
    if (made_now) groups_.push_back(*made_now);
    if (one_in(16)) return {};
    if (groups_.empty() || (made_now && !one_in(8))) return made_now ? *made_now : Groups();
    return groups_[byte() % groups_.size()];
  }

  void grouping() {
    const Groups made_now = groups({B_, H_, N_}, C_);
    if (!attempt([&] { return made_now.check("group", made_now.labels().shape(), device_), 0; })) return;
    expect_whole(made_now.permutation(), made_now.labels().shape(), 0, double(made_now.labels().size(2)));
    expect_whole(made_now.offsets(), made_now.offsets().shape(), 0, double(made_now.labels().size(2)) + 1);
    expect_whole(made_now.counts(), made_now.offsets().shape().with(-1, made_now.clusters()), 0,
                 double(made_now.labels().size(2)) + 1);
    if (!one_in(4)) return;
    Tensor own = pick({made_now.labels(), made_now.permutation(), made_now.offsets()});  // the same memory
    if (own.device() != Device::cpu || own.elements() == 0) return;
    own.mutable_data<int32_t>()[byte() % own.elements()] = int32_t(odd());
  }

  void segments() {
    const Groups g = groups({B_, H_, N_}, C_);
    const Segment kind = pick({Segment::sum, Segment::mean});
    const Tensor x = q_operand(), y = operand({B_, C_, H_, D_});
    if (const auto means = attempt([&] { return segment_reduce(kind, x, g); })) {
      const Shape shape = x.shape().with(1, g.clusters());
      Numbers expected(size_t(shape.elements())), members = numbers(g.counts());
      const Numbers from = numbers(x), label = numbers(g.labels());
      const int64_t N = x.size(1), H = x.size(2), D = x.size(3), C = g.clusters();
      for (int64_t i = 0; i < x.elements(); ++i) {
        const int64_t b = i / (N * H * D), n = i / (H * D) % N, h = i / D % H;
        const double c = label[size_t((b * H + h) * N + n)];
        if (c < 0 || c >= double(C)) continue;
        const double all = kind == Segment::mean ? members[size_t((b * H + h) * C + int64_t(c))] : 1;
        expected[size_t(((b * C + int64_t(c)) * H + h) * D + i % D)] += from[size_t(i)] / all;
      }
      if (is_small({x})) expect_numbers(*means, shape, x, expected);
    }
    if (const auto copies = attempt([&] { return segment_broadcast(kind, y, g); }))
      expect_finite(*copies, y.shape().with(1, g.labels().size(2)), y, is_small({y}));
  }

  void centroids() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand();
    const Tensor given = one_in(4) ? operand({B_, H_, N_, top_}, DType::int32, -1, S_) : Tensor();
    const AttentionOptions o = options();
    const int64_t top = count(top_);
    const bool with_rest = !one_in(8);
    const auto forward = attempt([&] { return centroid_topk(q, k, v, top, with_rest, o, given); });
    if (!forward) return;
    const Shape rows{q.size(0), q.size(2), q.size(1)};
    Shape keys = rows;
    keys.push_back(top);
    if (device_ == Device::cpu || !given.defined()) expect_whole(forward->topk, keys, -1, double(k.size(1)));
    const bool known = is_small({q, k, v}) && usual(o);
    expect_finite(forward->mass, rows, q, known);
    if (with_rest) expect_finite(forward->rest, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, known);
    CentroidTopK mixed = saved(*forward, centroids_);
    mixed.topk = saved_tensor(mixed.topk), mixed.logsumexp = saved_tensor(mixed.logsumexp);
    mixed.mass = saved_tensor(mixed.mass), mixed.rest = saved_tensor(mixed.rest);
    const Tensor dmass = operand(rows), drest = operand({q.size(0), q.size(1), q.size(2), v.size(3)});
    expect_gradient(attempt([&] { return centroid_topk_backward(q, k, v, o, mixed, dmass, drest); }), q, k, v,
                    is_small({q, k, v, dmass, drest}) && usual(o));
  }

  void top_keys() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand(), dout = operand({B_, N_, H_, M_});
    const Groups g = groups({B_, H_, N_}, C_);
    const AttentionOptions o = options();
    Tensor keys = operand({B_, H_, C_, 1}, DType::int32, -1, S_);
    if (!centroids_.empty() && one_in(3)) keys = centroids_[byte() % centroids_.size()].topk;
    const bool bare = one_in(3);
    const Tensor mass = bare ? Tensor() : operand({B_, H_, C_}), rest = bare ? Tensor() : operand({B_, C_, H_, M_});
    if (const auto out = attempt([&] { return topk_attention(q, k, v, g, keys, mass, rest, o); }))
      expect_finite(*out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, is_small({q, k, v, mass, rest}) && usual(o));
    if (const auto d = attempt([&] { return topk_attention_backward(q, k, v, g, keys, mass, o, dout); })) {
      const bool known = is_small({q, k, v, mass, dout}) && usual(o);
      expect_gradient(AttentionGradient{d->dq, d->dk, d->dv}, q, k, v, known);
      if (mass.defined()) expect_finite(d->dmass, mass.shape(), q, known);
    }
  }

  void buckets() {
    const Tensor q = q_operand(), v = operand({B_, N_, H_, M_}), dout = operand({B_, N_, H_, M_});
    const Tensor k = one_in(8) ? k_operand() : q;
    const Tensor lengths = one_in(2) ? operand({B_}, DType::int32, 0, N_ + 1) : Tensor();
    const BucketCount of{count(one_in(2) ? 0 : 2 * C_), count(1 + byte() % 40)};
    BucketOptions b;
    b.rounds = count(1 + byte() % 3), b.first = count(0), b.end = count(b.rounds), b.chunk = of.chunk;
    b.bucket_mask = one_in(2), b.deduplicate = one_in(2), b.self = one_in(2), b.wrap = one_in(2);
    const auto rotations =
        attempt([&] { return random_rotations(b.rounds, count(C_ + 2), count(D_), draw(), device_); });
    const auto made_now = attempt([&] {
      return hash_buckets(q, rotations ? *rotations : operand({2, C_ + 2, D_}, DType::float32), lengths, of);
    });
    if (made_now) expect_whole(*made_now, made_now->shape(), -1, double(INT32_MAX));
    auto sorted = attempt([&] {
      return group_buckets(made_now ? *made_now : operand({B_, H_, b.rounds, N_}, DType::int32, -1, C_),
                           count(2 * C_ + 2));
    });
    if (!sorted || one_in(8)) sorted = groups({B_, H_, N_}, C_);
    const AttentionOptions o = options();
    const auto forward = attempt([&] { return bucket_attention(q, k, v, *sorted, b, o); });
    if (!forward) return;
    expect_finite(forward->out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, is_small({q, k, v}) && usual(o));
    AttentionResult mixed = saved(*forward, attentions_);
    mixed.out = saved_tensor(mixed.out), mixed.logsumexp = saved_tensor(mixed.logsumexp);
    expect_gradient(attempt([&] { return bucket_attention_backward(q, k, v, *sorted, b, o, mixed, dout); }), q, k, v,
                    is_small({q, k, v, dout}) && usual(o));
  }

  const uint8_t *at_, *end_;
  Device device_;
  DType dtype_;
  int64_t B_, N_, S_, H_, D_, M_, C_, top_;  // sizes that operands share
  bool known_ = true;                        // of this call: what was saved belongs to its operands
  std::vector<LayerNormResult> layer_norms_;
  std::vector<CrossEntropy> losses_;
  std::vector<AttentionResult> attentions_;
  std::vector<LinearAttentionResult> linears_;
  std::vector<CentroidTopK> centroids_;
  std::vector<Groups> groups_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_threads(1);
  try {
    Program(data, size).run();
  } catch (const Error& error) {  // of what makes the operands
    expect_short_line(error.what());
  }
  return 0;
}
