#pragma once
// Scalar arithmetic, written once for the CPU and for CUDA. On the CPU, the float versions have no branches and no
// calls, so that the compiler vectorizes loops over them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "core/functions.h"

namespace cairn {

#ifndef __CUDA_ARCH__
// e^x times 2^(bias - 127). x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series; 2^n from its bits.
inline float scaled_exponential(float x, int bias) {
  const float magic = 12582912.0f + float(bias);  // 1.5 * 2^23: adding it leaves the integer n + bias in the low bits
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
  return p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}
// e^x for x up to 88, as a softmax needs it; 0 below -87.69. On the CPU alone.
inline float exponential_of_score(float x) { return scaled_exponential(x < -88.0f ? -88.0f : x, 127); }
inline double exponential_of_score(double x) { return std::exp(x); }
#endif

// e^x. Relative error below 2e-7 (tested); 0 below -86.99, infinity above 88.73, NaN for NaN.
CAIRN_HD inline float exponential(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  x = x < -87.33654f ? -87.33654f : x;
  x = x > 89.0f ? 89.0f : x;
  return scaled_exponential(x, 126) * 2.0f;  // a float cannot hold 2^128
#endif
}
CAIRN_HD inline double exponential(double x) { return exp(x); }

// The natural logarithm, relative error below 2.5e-7 (tested); minus infinity for 0, NaN below 0. Subnormal numbers
// count as 0. x = 2^n (1 + f) with |f| <= sqrt 2 - 1, and log (1 + f) = 2 artanh(f / (2 + f)) by its Taylor series.
CAIRN_HD inline float logarithm(float x) {
#ifdef __CUDA_ARCH__
  return logf(x);
#else
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr uint32_t half_square_root = 0x3f3504f3;  // the bits of sqrt(1/2)
  const auto bits = std::bit_cast<uint32_t>(x);
  const int32_t n = int32_t(bits - half_square_root) >> 23;
  const float f = std::bit_cast<float>(bits - (uint32_t(n) << 23)) - 1.0f, s = f / (2.0f + f), square = s * s;
  const float series = 2.0f * s * (1.0f + square * (1.0f / 3 + square * (1.0f / 5 + square * (1.0f / 7 + square / 9))));
  const float result = (float(n) * -2.12194440e-4f + series) + float(n) * 0.693359375f;
  const float of_zero = x < 0 ? std::numeric_limits<float>::quiet_NaN() : -infinity;
  return x < std::numeric_limits<float>::min() ? of_zero : x <= std::numeric_limits<float>::max() ? result : x;
#endif
}
CAIRN_HD inline double logarithm(double x) { return log(x); }

// 1 / x. On CUDA with a relative error of 2^-22, without the branches of a division.
CAIRN_HD inline float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  return __fdividef(1.0f, x);
#else
  return 1.0f / x;
#endif
}

// The standard normal distribution's cumulative function, (1 + erf(x / sqrt 2)) / 2, absolute error below 3e-7 in
// float.
CAIRN_HD inline float normal_cdf(float x) {
  // Abramowitz & Stegun, 7.1.26: erfc(z) = t (a1 + t (a2 + ...)) e^(-z^2) for z = |x| / sqrt 2.
  const float t = reciprocal(1.0f + 0.3275911f * 0.70710678f * std::fabs(x));
  const float series =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * series * exponential(-x * x / 2);  // normal_pdf has the same exponential
  return x < 0 ? tail : 1.0f - tail;
}
CAIRN_HD inline double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

// 1 / sqrt(2 pi) e^(-x^2 / 2).
template <class T>
CAIRN_HD T normal_pdf(T x) {
  return T(0.39894228040143267794) * exponential(-x * x / 2);
}

// 1 / (1 + e^-x).
template <class T>
CAIRN_HD T logistic(T x) {
  return 1 / (1 + exponential(-x));
}

// tanh, relative error below 4e-7 in float.
CAIRN_HD inline float hyperbolic_tangent(float x) {
#ifdef __CUDA_ARCH__
  return tanhf(x);
#else
  // Near 0, 1 - 2 / (e^2x + 1) has no correct digits, so the Taylor series takes its place.
  const float square = x * x, far = 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f);
  const float series =
      x * (1.0f + square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315 + square * (62.0f / 2835)))));
  return square < 0.09f ? series : far;
#endif
}
CAIRN_HD inline double hyperbolic_tangent(double x) { return std::tanh(x); }

// Is a the maximum of a and b? A NaN is larger than any number.
template <class T>
CAIRN_HD bool first_is_larger(T a, T b) {
  return a != a || a >= b;
}

// f(x), f'(x), f(a, b), the derivative by a (operand 0) or b (1), and a comparison, from the lists of functions.h.
#define CAIRN_FORMULA(name, formula, ...) \
  if constexpr (op == Op::name) return formula;
#define CAIRN_DERIVATIVE(name, formula, derivative) \
  if constexpr (op == Op::name) return derivative;
#define CAIRN_DERIVATIVES(name, formula, by_a, by_b) \
  if constexpr (op == Op::name) return operand == 0 ? by_a : by_b;
template <Unary op, class T>
CAIRN_HD T apply(T x) {
  using Op = Unary;
  CAIRN_UNARY(CAIRN_FORMULA)
}
template <Unary op, class T>
CAIRN_HD T derivative(T x) {
  using Op = Unary;
  CAIRN_UNARY(CAIRN_DERIVATIVE)
}
template <Binary op, class T>
CAIRN_HD T apply(T a, T b) {
  using Op = Binary;
  if constexpr (std::is_floating_point_v<T> || takes_int32(op)) {
    CAIRN_BINARY(CAIRN_FORMULA)
  } else {
    return 0;  // the operation refuses int32
  }
}
template <Binary op, int operand, class T>
CAIRN_HD T derivative(T a, T b) {
  using Op = Binary;
  CAIRN_BINARY(CAIRN_DERIVATIVES)
}
template <Compare op, class T>
CAIRN_HD bool apply(T a, T b) {
  using Op = Compare;
  CAIRN_COMPARISON(CAIRN_FORMULA)
}
#undef CAIRN_FORMULA
#undef CAIRN_DERIVATIVE
#undef CAIRN_DERIVATIVES

// Calls f<op>() for the function chosen at run time.
#define CAIRN_CASE(name, ...) \
  case Op::name: return f.template operator()<Op::name>();
template <class F>
void choose(Unary op, F&& f) {
  using Op = Unary;
  switch (op) { CAIRN_UNARY(CAIRN_CASE) }
}
template <class F>
void choose(Binary op, F&& f) {
  using Op = Binary;
  switch (op) { CAIRN_BINARY(CAIRN_CASE) }
}
template <class F>
void choose(Compare op, F&& f) {
  using Op = Compare;
  switch (op) { CAIRN_COMPARISON(CAIRN_CASE) }
}
#undef CAIRN_CASE

// x as another element type; bfloat16 is converted by way of float. A floating number beyond an integer type becomes
// the nearest number of this type, NaN becomes 0. An integer beyond it keeps its low bits, as in C++.
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
