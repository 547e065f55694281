#pragma once
// What operations share: the check of their operands (core/README.md has the rule), and shapes.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace cairn {

// The dtype of sums of x's elements, and of what is saved for backward: float32 for bfloat16, else x's dtype.
inline DType sums_of(DType dtype) { return dtype == DType::bfloat16 ? DType::float32 : dtype; }
inline DType sums_of(const Tensor& x) { return sums_of(x.dtype()); }

// An operand of an operation, and its requirements: this shape (see expect(); null: any), the device of the first
// operand, and the dtype of the first operand without `dtype`, which must be floating (or a number, see number()).
struct Operand {
  const char* name;  // in messages
  Tensor tensor;
  const char* shape;
  std::optional<DType> dtype{};  // this dtype instead
  bool optional = false;         // may be undefined
  bool or_int32 = false;         // floating or int32
};
inline Operand of_type(DType dtype, const char* name, const Tensor& tensor, const char* shape) {
  return {name, tensor, shape, dtype};
}
inline Operand optional(Operand operand) {
  operand.optional = true;
  return operand;
}
inline Operand number(Operand operand) {
  operand.or_int32 = true;
  return operand;
}

// The sizes that letters stand for.
class Sizes {
 public:
  Sizes() { sizes_.fill(unknown); }
  // Error: no shape has this letter.
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

// Checks the operands of an operation. Returns the sizes of the letters in their shapes, added to those in `known`.
//
//   expect("gather_rows", {{"table", table, "N C"}, of_type(DType::int32, "index", index, "*R")})
//
// A shape has a letter for each axis. A letter's first axis gives its size, and others must agree. "*R" stands for any
// number of leading axes; another "*R" must be the same ones, and "R" is a single axis of their product.
// Error: an operand does not meet its requirements.
Sizes expect(const char* operation, std::initializer_list<Operand> operands, Sizes known = {});

// The shape that two operands of one dtype and device broadcast to; `or_int32`: not only of floating ones.
Shape expect_broadcast(const char* operation, const Tensor& a, const Tensor& b, bool or_int32 = false);

// Error: an element of an int32 tensor is outside [lowest, highest]. Checks only on the CPU: CUDA reads nothing back,
// and its kernels skip such elements. The tensor may be undefined.
void check_values(const char* operation, const char* name, const Tensor& tensor, int64_t lowest, int64_t highest);

// For an optional operand: null if the tensor is undefined.
template <class T>
const T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

// An uninitialized tensor of x's shape, dtype and device.
Tensor empty_like(const Tensor& x);
// `shape` with one more axis, the last.
Shape appended(Shape shape, int64_t size);

}  // namespace cairn
