#pragma once
// What operations share: the check of their operands (core/README.md has the rule), and the shapes they make.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "core/kernels/matrix.h"
#include "core/tensor.h"

namespace cairn {

// The dtype of sums of x's elements, and of what is saved of them: float32 for bfloat16, else x's own.
inline DType sums_of(DType dtype) { return dtype == DType::bfloat16 ? DType::float32 : dtype; }
inline DType sums_of(const Tensor& x) { return sums_of(x.dtype()); }

// A tensor that an operation is given, and what it must be: of this shape (see expect(); null: of any), on the device
// of the first operand, and floating, of the dtype of the first one that has no dtype of its own here.
struct Operand {
  const char* name;  // in messages
  const Tensor& tensor;
  const char* shape;
  std::optional<DType> dtype{};  // another dtype than that
  bool sums = false;             // the dtype of sums
  bool optional = false;         // may be undefined
};
inline Operand sums(const char* name, const Tensor& tensor, const char* shape) {
  return {name, tensor, shape, {}, true};
}
inline Operand of_type(DType dtype, const char* name, const Tensor& tensor, const char* shape) {
  return {name, tensor, shape, dtype};
}
inline Operand optional(Operand operand) {
  operand.optional = true;
  return operand;
}

// The sizes that letters stand for.
class Sizes {
 public:
  Sizes() { sizes_.fill(unknown); }
  // Error: nothing has given it a size.
  int64_t operator[](char letter) const;

 private:
  friend Sizes expect(const char*, std::initializer_list<Operand>, Sizes);
  static constexpr int64_t unknown = -1;
  bool match(const char* pattern, const Shape& shape);
  std::string text(const char* pattern) const;

  std::array<int64_t, 26> sizes_;
  char leading_ = 0;  // the letter of `leading_axes_`
  Shape leading_axes_;
  const char *first_ = nullptr, *floating_ = nullptr;  // the operands that give the device and the dtype
  Device device_{};
  DType dtype_{};
};

// Checks the operands of an operation; returns the sizes that their shapes name, and those `known` before.
//
//   expect("layer_norm", {{"x", x, "*R C"}, {"weight", weight, "C"}, sums("the saved mean", saved.mean, "R")})
//
// A shape is a letter an axis. The first axis of a letter gives its size, and others must agree. "*R" is any number of
// axes, in front of the others; another "*R" the same ones, and "R" a single axis whose length is their product.
// Error: an operand is not what it must be.
Sizes expect(const char* operation, std::initializer_list<Operand> operands, Sizes known = {});

// Error: an element of an int32 tensor is outside [lowest, highest]. On CUDA nothing is read back: kernels pass over
// such ones. Undefined tensors have none.
void check_values(const char* operation, const char* name, const Tensor& tensor, int64_t lowest, int64_t highest);

// R rows of C columns, for a kernel that need not visit rows of nothing, however many there are.
Rows filled_rows(const Sizes& s);
// An uninitialized tensor of x's shape, dtype and device.
Tensor like(const Tensor& x);
// `shape` with one more axis, the last.
Shape appended(Shape shape, int64_t size);

}  // namespace cairn
