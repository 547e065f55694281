#pragma once
// What operations share: the checks of their operands (core/README.md has the rule), and the shapes they make.
#include <cstdint>
#include <initializer_list>

#include "core/kernels/softmax.h"
#include "core/tensor.h"

namespace cairn {

// The dtype of sums of x's elements, and of what is saved of them: float32 for bfloat16, else x's own.
DType sums_of(const Tensor& x);
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};
// Error: a tensor is undefined, not floating, or differs from the first in dtype or device.
void check_operands(const char* operation, std::initializer_list<NamedTensor> operands);
// Error: not of this shape.
void check_shape(const char* operation, const char* argument, const Tensor& tensor, const Shape& expected);
// Error: undefined, not of this dtype, on another device or (if there is one) not of this shape.
void check_tensor(const char* operation, const char* argument, const Tensor& tensor, DType dtype, Device device);
void check_tensor(const char* operation, const char* argument, const Tensor& tensor, DType dtype, Device device,
                  const Shape& shape);
// Error: an element of an int32 tensor is outside [lowest, n). On CUDA nothing is read back: kernels pass over such
// ones.
void check_indices(const char* operation, const char* what, const Tensor& index, int64_t lowest, int64_t n);

// An uninitialized tensor of x's shape, dtype and device.
Tensor like(const Tensor& x);
// x as a matrix of rows along its last axis. Error: undefined, or a scalar.
Rows rows_of(const char* operation, const Tensor& x);
// The same where rows of nothing need no visit, however many there are.
Rows filled_rows_of(const char* operation, const Tensor& x);
// `shape` with one more axis, the last.
Shape appended(Shape shape, int64_t size);

}  // namespace cairn
