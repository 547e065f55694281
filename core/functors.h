#pragma once
// Scalar arithmetic, written once for the CPU and for CUDA. On the CPU the float versions have no branches and no
// calls, so that the compiler vectorizes the loops around them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "core/functions.h"

namespace cairn {

// e^x. Relative error below 2e-7 (tested); 0 below -86.99, infinity above 88.73, NaN for NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series.
CAIRN_HD inline float exponential(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  x = x < -87.33654f ? -87.33654f : x;
  x = x > 89.0f ? 89.0f : x;
  constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float shifted = x * 1.44269504f + magic, n = shifted - magic;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts, the first exact in 9 bits
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^(n-1) from its bits, then twice it, because 2^128 has none.
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + (126u << 23)) * 2.0f;
#endif
}
CAIRN_HD inline double exponential(double x) { return exp(x); }

// The standard normal distribution's cumulative function, (1 + erf(x / sqrt 2)) / 2, absolute error below 3e-7 in
// float.
CAIRN_HD inline float normal_cdf(float x) {
#ifdef __CUDA_ARCH__
  return normcdff(x);
#else
  // Abramowitz & Stegun, 7.1.26: erfc(z) = t (a1 + t (a2 + ...)) e^(-z^2) for z >= 0.
  const float z = std::fabs(x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);
  const float series =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * series * exponential(-z * z);
  return x < 0 ? tail : 1.0f - tail;
#endif
}
CAIRN_HD inline double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

// 1 / sqrt(2 pi) e^(-x^2 / 2).
template <class T>
CAIRN_HD T normal_pdf(T x) {
  return T(0.39894228040143267794) * exponential(-x * x / 2);
}

template <Unary op, class T>
CAIRN_HD T apply(T x) {
  if constexpr (op == Unary::negate) return -x;
  if constexpr (op == Unary::exp) return exponential(x);
  if constexpr (op == Unary::log) return std::log(x);
  if constexpr (op == Unary::sqrt) return std::sqrt(x);
  if constexpr (op == Unary::square) return x * x;
  if constexpr (op == Unary::relu) return x < 0 ? T(0) : x;
  if constexpr (op == Unary::gelu) return x == -T(INFINITY) ? T(0) : x * normal_cdf(x);
}

// f'(x).
template <Unary op, class T>
CAIRN_HD T derivative(T x) {
  if constexpr (op == Unary::negate) return T(-1);
  if constexpr (op == Unary::exp) return exponential(x);
  if constexpr (op == Unary::log) return 1 / x;
  if constexpr (op == Unary::sqrt) return T(0.5) / std::sqrt(x);
  if constexpr (op == Unary::square) return 2 * x;
  if constexpr (op == Unary::relu) return x > 0 ? T(1) : T(0);
  if constexpr (op == Unary::gelu) return normal_cdf(x) + x * normal_pdf(x);
}

template <Binary op, class T>
CAIRN_HD T apply(T a, T b) {
  if constexpr (op == Binary::add) return a + b;
  if constexpr (op == Binary::subtract) return a - b;
  if constexpr (op == Binary::multiply) return a * b;
  if constexpr (op == Binary::divide) return a / b;
}

// Calls f<op>() for the operation chosen at run time.
template <class F>
void choose(Unary op, F&& f) {
  switch (op) {
    case Unary::negate: return f.template operator()<Unary::negate>();
    case Unary::exp: return f.template operator()<Unary::exp>();
    case Unary::log: return f.template operator()<Unary::log>();
    case Unary::sqrt: return f.template operator()<Unary::sqrt>();
    case Unary::square: return f.template operator()<Unary::square>();
    case Unary::relu: return f.template operator()<Unary::relu>();
    case Unary::gelu: return f.template operator()<Unary::gelu>();
  }
}
template <class F>
void choose(Binary op, F&& f) {
  switch (op) {
    case Binary::add: return f.template operator()<Binary::add>();
    case Binary::subtract: return f.template operator()<Binary::subtract>();
    case Binary::multiply: return f.template operator()<Binary::multiply>();
    case Binary::divide: return f.template operator()<Binary::divide>();
  }
}
template <class F>
void choose(Activation activation, F&& f) {
  switch (activation) {
    case Activation::gelu: return f.template operator()<Unary::gelu>();
    case Activation::relu: return f.template operator()<Unary::relu>();
  }
}

// x as another element type. bfloat16 goes by way of float. What is beyond an integer type becomes its nearest number,
// NaN 0.
template <class To, class From>
CAIRN_HD To convert(From x) {
  if constexpr (std::is_same_v<From, To>)
    return x;
  else if constexpr (std::is_same_v<From, bfloat16>)
    return convert<To>(float(x));
  else if constexpr (std::is_same_v<To, bfloat16>)
    return bfloat16(float(x));
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    constexpr To minimum = std::numeric_limits<To>::min(), maximum = std::numeric_limits<To>::max();
    if (x != x) return To(0);
    return x <= From(minimum) ? minimum : x >= From(maximum) ? maximum : To(x);
  } else
    return To(x);
}

}  // namespace cairn
