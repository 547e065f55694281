#pragma once
// Every tolerance of the tests stands here.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace cairn::tolerance {

// "Equal" between two float32 computations: max|a - b| <= value * max(1, max|b|).
inline constexpr double float32 = 1e-5;
// bfloat16 against float32 from the same inputs, by the same measure: four roundings of 2^-9, of a result and of what
// led to it (all arithmetic is in float32).
inline constexpr double bfloat16 = 0x1p-7;
// Losses of 10 training steps on CUDA against the CPU's, relative: rounding in another order, carried on by training.
inline constexpr double losses = 1e-4;
// The sum of 10 losses in bfloat16 or TF32 against float32, relative. Each of some ten operations of a layer rounds by
// up to 2^-9, which the loss sees averaged over positions; clusters may come out otherwise.
inline constexpr double losses_bfloat16 = 0.02;
// Between two float64 computations of the same thing, by the same measure.
inline constexpr double float64 = 1e-12;
// Relative error of a gradient in float64 against central differences.
inline constexpr double gradient = 1e-6;
// Golden files hold float32 printed with nine digits; two float32 computations of 20 optimizer steps.
inline constexpr double golden = 1e-5;
// A frequency over 10^6 draws against its expectation (dropout, uniform draws): five standard deviations of p = 1/2.
inline constexpr double frequency = 2.5e-3;
// E[Hamming distance] / bits against angle / pi.
inline constexpr double hash_angle = 0.005;

}  // namespace cairn::tolerance

namespace cairn {

// max|a - b| / max(1, max|b|); infinite where one is NaN and the other is not, or sizes differ.
template <class A, class B>
double difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return INFINITY;
  double maximum = 0, scale = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = double(a[i]), y = double(b[i]);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x == y) continue;  // infinities of one sign too
    if (!std::isfinite(x) || !std::isfinite(y)) return INFINITY;
    maximum = std::max(maximum, std::abs(x - y));
    scale = std::max(scale, std::abs(y));
  }
  return maximum / scale;
}

}  // namespace cairn
