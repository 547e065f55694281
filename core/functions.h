#pragma once
// The functions of single elements, by name. core/functors.h computes them.

namespace cairn {

enum class Unary { negate, exp, log, sqrt, square, relu, gelu };
enum class Binary { add, subtract, multiply, divide };
enum class Activation { gelu, relu };

constexpr const char* name(Unary op) {
  constexpr const char* names[] = {"negate", "exp", "log", "sqrt", "square", "relu", "gelu"};
  return names[int(op)];
}
constexpr const char* name(Binary op) {
  constexpr const char* names[] = {"add", "subtract", "multiply", "divide"};
  return names[int(op)];
}

}  // namespace cairn
