#pragma once
// The functions of single elements. Both devices, the gradients and messages use these lists; a function is defined
// nowhere else. core/functors.h turns the formulas into C++ for T = float or double, and has the functions that they
// call.

namespace cairn {

// clang-format off
// A name and f(x); a line for f'(x).
#define CAIRN_UNARY(F)                                  \
  F(exp, exponential(x),                                \
    exponential(x))                                     \
  F(log, std::log(x),                                   \
    1 / x)                                              \
  F(sqrt, std::sqrt(x),                                 \
    T(0.5) / std::sqrt(x))                              \
  F(square, x * x,                                      \
    2 * x)                                              \
  F(abs, std::fabs(x),                                  \
    x > 0 ? T(1) : x < 0 ? T(-1) : x)                   \
  F(reciprocal, 1 / x,                                  \
    -1 / (x * x))                                       \
  F(rsqrt_or_zero, x == 0 ? T(0) : 1 / std::sqrt(x),    \
    x == 0 ? T(0) : T(-0.5) / (x * std::sqrt(x)))       \
  F(tanh, hyperbolic_tangent(x),                        \
    1 - hyperbolic_tangent(x) * hyperbolic_tangent(x))  \
  F(sigmoid, logistic(x),                               \
    logistic(x) * logistic(-x))                         \
  F(relu, x < 0 ? T(0) : x,                             \
    x > 0 ? T(1) : T(0))                                \
  F(gelu, x == -T(INFINITY) ? T(0) : x * normal_cdf(x), \
    normal_cdf(x) + x * normal_pdf(x))                  \
  F(silu, x == -T(INFINITY) ? T(0) : x * logistic(x),   \
    logistic(x) * (1 + x * logistic(-x)))               \
  F(elu_plus_one, x > 0 ? x + 1 : exponential(x),       \
    x > 0 ? T(1) : exponential(x))                      \
  /* [lesson 1: F(softplus, T(NAN), T(NAN)) */          \
  F(softplus, (x > 0 ? x : T(0)) + std::log1p(exponential(-std::fabs(x))), \
    logistic(x))                                        \
  /* lesson 1] */

// A name and f(a, b); a line for df / da and df / db.
#define CAIRN_BINARY(F)                                                                             \
  F(add, a + b,                                                                                     \
    T(1), T(1))                                                                                     \
  F(subtract, a - b,                                                                                \
    T(1), T(-1))                                                                                    \
  F(multiply, a * b,                                                                                \
    b, a)                                                                                           \
  F(divide, a / b,                                                                                  \
    1 / b, -(a / b) / b)                                                                            \
  F(divide_or_zero, b == 0 ? T(0) : a / b,                                                          \
    b == 0 ? T(0) : 1 / b, b == 0 ? T(0) : -(a / b) / b)                                            \
  F(maximum, first_is_larger(a, b) ? a : b,                                                         \
    first_is_larger(a, b) ? T(1) : T(0), first_is_larger(a, b) ? T(0) : T(1))                       \
  F(pow, std::pow(a, b),                                                                            \
    b == 0 ? T(0) : b * std::pow(a, b - 1), a == 0 && b >= 0 ? T(0) : std::pow(a, b) * std::log(a)) \
  F(binary_cross_entropy, (a > 0 ? a : T(0)) - a * b + std::log1p(exponential(-std::fabs(a))),      \
    logistic(a) - b, -a)
// clang-format on

// A name, and a comparison.
#define CAIRN_COMPARISON(F) \
  F(less, a < b)            \
  F(less_equal, a <= b)     \
  F(equal, a == b)

#define CAIRN_NAME(name, ...) name,
enum class Unary { CAIRN_UNARY(CAIRN_NAME) };
enum class Binary { CAIRN_BINARY(CAIRN_NAME) };
enum class Compare { CAIRN_COMPARISON(CAIRN_NAME) };
#undef CAIRN_NAME

#define CAIRN_TEXT(name, ...) #name,
inline constexpr const char* unary_names[] = {CAIRN_UNARY(CAIRN_TEXT)};
inline constexpr const char* binary_names[] = {CAIRN_BINARY(CAIRN_TEXT)};
inline constexpr const char* comparison_names[] = {CAIRN_COMPARISON(CAIRN_TEXT)};
#undef CAIRN_TEXT
// int32 has these; the other functions are of floating numbers alone.
constexpr bool takes_int32(Binary op) {
  return op == Binary::add || op == Binary::subtract || op == Binary::multiply || op == Binary::maximum;
}

constexpr const char* name(Unary op) { return unary_names[int(op)]; }
constexpr const char* name(Binary op) { return binary_names[int(op)]; }
constexpr const char* name(Compare op) { return comparison_names[int(op)]; }

}  // namespace cairn
