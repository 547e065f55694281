#pragma once
// Operations from tensors to tensors. Each checks its arguments, allocates its result and calls the kernel of the
// device. Autograd and code without gradients (labels, metrics, data) call them. The floating operands of an operation
// must agree in dtype and device; the error names the one that does not. All operations accept empty tensors.

#include <vector>

#include "core/kernels/elementwise.h"
#include "core/random.h"
#include "core/tensor.h"

namespace cairn {

// ---- single elements (core/functions.h lists them)
Tensor unary(Unary op, const Tensor& x);
// f'(x) dy.
Tensor unary_backward(Unary op, const Tensor& x, const Tensor& dy);
// Shapes broadcast as in NumPy. Error: they do not broadcast.
Tensor binary(Binary op, const Tensor& a, const Tensor& b);
// df / da dy (operand 0) or df / db dy (operand 1), in the shape that a and b broadcast to.
Tensor binary_backward(Binary op, int operand, const Tensor& a, const Tensor& b, const Tensor& dy);
// bool. Shapes broadcast.
Tensor compare(Compare op, const Tensor& a, const Tensor& b);
// a where the condition (bool) is true, else b. Shapes broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// alpha x + beta.
Tensor affine(const Tensor& x, double alpha, double beta = 0);
// y += x, in place, for tensors of one shape.
void accumulate(Tensor& y, const Tensor& x);

// ---- shapes, for tensors of any dtype. Negative axes count from the end. Error: an axis is out of range or given
// twice.
using Axes = std::vector<int>;
// Axis i of the result is axis axes[i] of x.
Tensor permute(const Tensor& x, const Axes& axes);
// Positions [begin, end) of one axis. Error: out of range.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);
// Writes x to positions [begin, begin + x.size(axis)) of one axis of y. Error: it does not fit.
void assign(Tensor& y, int axis, int64_t begin, const Tensor& x);
// x repeated to `shape`. Error: x does not broadcast to it.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

// ---- reductions
// Over some axes. They disappear; with `keep` they have one element. A sum over no elements is 0.
Tensor sum(const Tensor& x, const Axes& axes, bool keep = false);
// Over all elements, to a scalar.
Tensor sum(const Tensor& x);
// The gradient of broadcasting from `shape` to x's shape: sums over the axes that were stretched or added.
Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- rows
// table [n, cols], index int32 [...] -> [..., cols]; index -1 gives zeros. Error (on the CPU): index outside [-1, n).
Tensor gather_rows(const Tensor& table, const Tensor& index);
// The gradient: [n, cols] with x [..., cols] added at index [...].
Tensor scatter_add_rows(const Tensor& x, const Tensor& index, int64_t n);

// The index of the largest element along the last axis, int32 [...]; the first of equal ones; a NaN is the largest.
// Error: the axis is empty or too long.
Tensor argmax(const Tensor& x);
// One column of each row of x [..., C], columns int32 [...] -> [...]; column -1 gives 0. Error (on the CPU): column
// outside [-1, C).
Tensor gather_columns(const Tensor& x, const Tensor& columns);
// The gradient: [..., n] with y [...] at these columns and 0 elsewhere.
Tensor scatter_columns(const Tensor& y, const Tensor& columns, int64_t n);

}  // namespace cairn
