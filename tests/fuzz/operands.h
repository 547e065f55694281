#pragma once
// What the fuzz target of operations makes of its bytes: operands that fit or not; and what it expects of results.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <vector>

#include "core/attention_ops.h"
#include "nn/purpose.h"
#include "tests/fuzz/fuzz.h"
#include "tests/ops/reference.h"
#include "tests/tolerances.h"

namespace cairn {

#if CAIRN_HAS_CUDA
inline constexpr bool has_cuda = true;
#else
inline constexpr bool has_cuda = false;
#endif

using Numbers = std::vector<double>;

// Not more elements than are worth looking at.
inline bool few(const Tensor& x) { return x.elements() <= 1 << 16; }

// All finite and at most 4: then float32 neither overflows nor loses more than its tolerance.
inline bool small(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) return true;
  if (!few(x)) return false;
  const Numbers values = as_double(x);
  return std::all_of(values.begin(), values.end(), [](double v) { return std::abs(v) <= 4; });
}

inline double tolerance_of(DType dtype) {
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

inline void expect_result(const Tensor& y, const Shape& shape, const Tensor& like) {
  expect(y.defined() && y.shape() == shape, "a result of another shape");
  expect(y.dtype() == like.dtype() && y.device() == like.device(), "a result of another type or device");
}
inline void expect_numbers(const Tensor& y, const Shape& shape, const Tensor& like, const Numbers& expected) {
  expect_result(y, shape, like);
  expect(difference(as_double(y), expected) <= tolerance_of(y.dtype()), "a result that is not the formula's");
}
// Finite, if `known`: the operands are small and what was saved belongs to them.
inline void expect_finite(const Tensor& y, const Shape& shape, const Tensor& like, bool known) {
  expect_result(y, shape, like);
  if (!known || !few(y)) return;
  for (const double value : as_double(y)) expect(std::isfinite(value), "a result that is not finite");
}
// Whole numbers in [low, high).
inline void expect_whole(const Tensor& y, const Shape& shape, double low, double high) {
  expect(y.dtype() == DType::int32 && y.shape() == shape, "whole numbers of another shape");
  if (!few(y)) return;
  for (const double value : as_double(y)) expect(value >= low && value < high, "a label or key that there is not");
}

// Reads the bytes.
class Operands {
 protected:
  Operands(const uint8_t* data, size_t size) : at_(data), end_(data + size) {
    device_ = has_cuda && one_in(16) ? Device::cuda : Device::cpu;
    dtype_ = device_ == Device::cuda ? pick({DType::float32, DType::bfloat16}) : pick({DType::float32, DType::float64});
    B_ = length(3), N_ = length(100), S_ = length(100), H_ = length(3), D_ = length(20), M_ = length(20);
    C_ = 1 + length(9), top_ = 1 + length(9);
  }

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
  Draw draw() {
    static const Generator generator(1);
    return generator.draw(byte(), Purpose::test);
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

  const uint8_t *at_, *end_;
  Device device_;
  DType dtype_;
  int64_t B_, N_, S_, H_, D_, M_, C_, top_;  // sizes that operands share
  bool known_ = true;                        // of this call: what was saved belongs to its operands
};

}  // namespace cairn
