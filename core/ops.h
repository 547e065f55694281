#pragma once
// Operations on tensors that have no gradient. (autograd/ops.h lists those that have one; attention_ops.h lists those
// of attention.) Each checks its arguments, allocates its result and calls the kernel of the device. All operations
// accept empty tensors.
#include "core/kernels/elementwise.h"
#include "core/random.h"
#include "core/tensor.h"

namespace cairn {

// bool. Shapes broadcast as in NumPy; dtypes agree. Error: they do not.
Tensor compare(Compare op, const Tensor& a, const Tensor& b);
// int32 [n]: 0, 1, ..., n - 1.
Tensor arange(int64_t n, Device device);
// y += x, in place, for tensors of one shape.
void accumulate(Tensor& y, const Tensor& x);
// The index of the largest element along the last axis, int32 [...]; the first of equal ones; a NaN is the largest.
// Error: the axis is empty or too long.
Tensor argmax(const Tensor& x);

}  // namespace cairn
