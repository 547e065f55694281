#pragma once
// Scalar arithmetic, written once for the CPU and for CUDA. On the CPU the float versions have no branches and no
// calls, so that the compiler vectorizes the loops around them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/kernels/bias_activation.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/optimizer.h"
#include "core/random.h"

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

// ---- Optimizers. What one step does to all elements alike is computed once, in double, from the counts; the update of
// an element is then a few operations. T is what the arithmetic is done in.

// What a gradient of this norm does to the state: the scale that clips it to max_norm (0: none), and skip or advance.
CAIRN_HD inline void prepare_state(double norm, double max_norm, OptimizerState& state) {
  state.gradient_norm = norm;
  state.gradient_scale = max_norm > 0 && norm > max_norm ? max_norm / norm : 1;
  state.skip = norm - norm != 0;  // NaN or infinite
  if (state.skip) {
    ++state.skipped;
    ++state.skipped_in_a_row;
  } else {
    ++state.step;
    state.skipped_in_a_row = 0;
  }
}

// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  x = decay x - step_size m / (root_scale sqrt(v) +
// epsilon), for the clipped gradient g. Where not `adaptive`, the denominator is 1.
template <class T>
struct AdamStep {
  T gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, root_scale, epsilon;
  bool adaptive;

  CAIRN_HD AdamStep(const AdamOptions& o, const OptimizerState& state, double size, double root, bool is_adaptive)
      : gradient_scale(T(state.gradient_scale)),
        beta1(T(o.beta1)),
        one_minus_beta1(T(1 - o.beta1)),
        beta2(T(o.beta2)),
        one_minus_beta2(T(1 - o.beta2)),
        decay(T(1 - state.learning_rate * o.weight_decay)),
        step_size(T(size)),
        root_scale(T(root)),
        epsilon(T(o.epsilon)),
        adaptive(is_adaptive) {}
};

// Adam: both moments are divided by what their weights sum to after t steps, 1 - beta^t.
template <class T>
CAIRN_HD AdamStep<T> adam_coefficients(const AdamOptions& o, const OptimizerState& state) {
  const double t = double(state.step), correction1 = 1 - pow(o.beta1, t), correction2 = 1 - pow(o.beta2, t);
  return {o, state, state.learning_rate / correction1, 1 / std::sqrt(correction2), true};
}

// R-Adam: rho_t is the number of gradients that v effectively averages over. Above 5 its variance is finite and the
// step is rectified for it (Liu et al. 2020, equation 4 and Algorithm 2); below, v is not used. Here sqrt(v) + epsilon
// is not corrected for bias, the step size is.
template <class T>
CAIRN_HD AdamStep<T> r_adam_coefficients(const AdamOptions& o, const OptimizerState& state) {
  const double t = double(state.step), power2 = pow(o.beta2, t);
  const double correction1 = 1 - pow(o.beta1, t), correction2 = 1 - power2;
  const double maximum = 2 / (1 - o.beta2) - 1, rho = maximum - 2 * t * power2 / correction2;
  const double step_size = state.learning_rate / correction1;
  if (rho <= 5) return {o, state, step_size, 1, false};
  const double rectification = std::sqrt((rho - 4) * (rho - 2) * maximum / ((maximum - 4) * (maximum - 2) * rho));
  return {o, state, step_size * rectification * std::sqrt(correction2), 1, true};
}

// One element's update, of Adam and of R-Adam.
template <class T>
CAIRN_HD void adam_update(const AdamStep<T>& step, T gradient, T& x, T& first, T& second) {
  const T g = step.gradient_scale * gradient;
  first = step.beta1 * first + step.one_minus_beta1 * g;
  second = step.beta2 * second + step.one_minus_beta2 * g * g;
  const T move = step.step_size * first;
  x = step.decay * x - (step.adaptive ? move / (step.root_scale * std::sqrt(second) + step.epsilon) : move);
}

// m = momentum m + g + weight_decay x,  x -= learning_rate m, for the clipped gradient g.
template <class T>
struct SgdStep {
  T gradient_scale, momentum, weight_decay, learning_rate;

  CAIRN_HD SgdStep(const SgdOptions& o, const OptimizerState& state)
      : gradient_scale(T(state.gradient_scale)),
        momentum(T(o.momentum)),
        weight_decay(T(o.weight_decay)),
        learning_rate(T(state.learning_rate)) {}
};

template <class T>
CAIRN_HD void sgd_update(const SgdStep<T>& step, T gradient, T& x, T& first) {
  first = step.momentum * first + step.gradient_scale * gradient + step.weight_decay * x;
  x -= step.learning_rate * first;
}

}  // namespace cairn
