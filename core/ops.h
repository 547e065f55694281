#pragma once
// Operations from tensors to tensors: each checks its arguments, allocates its result and calls the kernel of the
// device. Autograd and code without gradients (labels, metrics, data) call these. Floating operands of one operation
// must agree in dtype and device; a message says which did not. Empty tensors are fine everywhere.

#include <vector>

#include "core/kernels/bias_activation.h"
#include "core/kernels/elementwise.h"
#include "core/random.h"
#include "core/tensor.h"

namespace cairn {

// ---- single elements (core/functions.h lists them)
Tensor unary(Unary op, const Tensor& x);
// f'(x) dy.
Tensor unary_backward(Unary op, const Tensor& x, const Tensor& dy);
// Shapes broadcast as in NumPy. Error: they do not.
Tensor binary(Binary op, const Tensor& a, const Tensor& b);
// df / da dy (operand 0) or df / db dy (operand 1), in the shape that a and b broadcast to.
Tensor binary_backward(Binary op, int operand, const Tensor& a, const Tensor& b, const Tensor& dy);
// bool. Shapes broadcast.
Tensor compare(Compare op, const Tensor& a, const Tensor& b);
// a where the condition (bool) is true, else b. Shapes broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// alpha x + beta.
Tensor affine(const Tensor& x, double alpha, double beta = 0);
// y += alpha x, in place, for tensors of one shape.
void accumulate(Tensor& y, const Tensor& x, double alpha = 1);

// ---- shapes, for tensors of any dtype. Negative axes count from the end. Error: an axis that is not there, or twice.
using Axes = std::vector<int>;
// Axis i of the result is axis axes[i] of x.
Tensor permute(const Tensor& x, const Axes& axes);
// Positions [begin, end) of one axis. Error: out of range.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);
// x in place of positions [begin, begin + x.size(axis)) of one axis of y. Error: it does not fit there.
void assign(Tensor& y, int axis, int64_t begin, const Tensor& x);
// One behind the other, along an axis. Error: none, or the other axes differ.
Tensor concat(const std::vector<Tensor>& tensors, int axis);
// x repeated to `shape`. Error: x does not broadcast to it.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

// ---- reductions
// Over some axes, which disappear, or with `keep` have one element. A sum over no elements is 0.
Tensor sum(const Tensor& x, const Axes& axes, bool keep = false);
// Over all elements, to a scalar.
Tensor sum(const Tensor& x);
// The gradient of broadcasting `shape` to x's: sums over the axes that were stretched or added.
Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- matrices
// op(a) op(b) for a [..., m, k] and b [..., k, n] with equal leading axes, or one of them a matrix for all of the
// other; a transposed operand is given [..., k, m] or [..., n, k]. Error: sizes disagree.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);
// x weight^T + bias for x [..., in], weight [out, in], bias [out] (or undefined: none).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);
// f(x + bias) in one pass, for x [..., cols], bias [cols] and f of the activation.
Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation);
// f'(x + bias) dy.
Tensor bias_activation_backward(const Tensor& x, const Tensor& bias, Activation activation, const Tensor& dy);

// ---- rows
// Over the last axis.
Tensor softmax(const Tensor& x);
Tensor softmax_backward(const Tensor& y, const Tensor& dy);

struct LayerNormResult {
  Tensor y, mean, rstd;  // [..., cols], [rows], [rows]
};
// Over the last axis, for weight and bias [cols].
LayerNormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon);
struct LayerNormGradient {
  Tensor dx, dweight, dbias;
};
LayerNormGradient layer_norm_backward(const Tensor& x, const Tensor& weight, const LayerNormResult& saved,
                                      const Tensor& dy);

// Zero with probability p, else scaled by 1 / (1 - p). The gradient is the same function of the gradient. Axis 0 counts
// examples, of which a scalar has none.
// Error: p outside [0, 1].
Tensor dropout(const Tensor& x, double p, Draw draw);
// residual + dropout(x), in one pass.
Tensor dropout_add(const Tensor& x, double p, Draw draw, const Tensor& residual);

// table [n, cols], index [...] int32 -> [..., cols]; index -1 gives zeros. Error (on the CPU): index outside [-1, n).
Tensor gather_rows(const Tensor& table, const Tensor& index);
// The gradient: [n, cols] with x [..., cols] added at index [...].
Tensor scatter_add_rows(const Tensor& x, const Tensor& index, int64_t n);

struct CrossEntropy {
  Tensor loss, logsumexp, count;  // scalar, [rows], int32 scalar
};
// Mean of -log softmax(logits)[target] over the rows whose target is not negative. logits [..., classes], targets [...]
// int32. Error (on the CPU): a target that is no class.
CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets);
Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets, const CrossEntropy& saved,
                              const Tensor& dloss);

// Where the largest of the last axis stands, int32 [...]: of equal ones the first; a NaN is the largest. With lengths
// int32 [B], for x [B, ..., N, C]: -1 for position i >= lengths[b] of N. Error: the axis is empty.
Tensor argmax(const Tensor& x, const Tensor& lengths = {});
// x [..., C] at one column a row, int32 [...]: [...]; column -1 gives 0. Error (on the CPU): column outside [-1, C).
Tensor gather_columns(const Tensor& x, const Tensor& columns);
// The gradient: [..., n], y [...] at those columns and 0 elsewhere.
Tensor scatter_columns(const Tensor& y, const Tensor& columns, int64_t n);

}  // namespace cairn
