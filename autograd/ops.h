#pragma once
// Every differentiable function. ops/<stem>.cpp defines it, forward pass and gradient side by side. Code without
// gradients gives it tensors and takes value(). The floating operands must agree in dtype and device; the error names
// the one that does not. Where core/ops.h has a tensor operation of the same name, errors are those of that operation.
#include <initializer_list>
#include <optional>
#include <vector>

#include "autograd/tape.h"
#include "core/attention_ops.h"

namespace cairn {

// ---- elementwise (ops/elementwise.cpp). Operands broadcast as in NumPy.
Variable operator+(const Variable& a, const Variable& b);
Variable operator-(const Variable& a, const Variable& b);
Variable operator*(const Variable& a, const Variable& b);
Variable operator/(const Variable& a, const Variable& b);
Variable operator*(double alpha, const Variable& x);
Variable operator+(const Variable& x, double beta);
inline Variable operator-(const Variable& x) { return -1.0 * x; }
inline Variable operator*(const Variable& x, double alpha) { return alpha * x; }
inline Variable operator/(const Variable& x, double alpha) { return (1 / alpha) * x; }
inline Variable operator+(double beta, const Variable& x) { return x + beta; }
inline Variable operator-(const Variable& x, double beta) { return x + -beta; }
inline Variable operator-(double beta, const Variable& x) { return -x + beta; }
Variable reciprocal(const Variable& x);  // 1 / x
inline Variable operator/(double alpha, const Variable& x) { return alpha * reciprocal(x); }
Variable divide_or_zero(const Variable& a, const Variable& b);  // where b is 0, it and its gradients are 0
Variable maximum(const Variable& a, const Variable& b);         // if a = b, a gets the gradient
Variable pow(const Variable& a, const Variable& b);
Variable pow(const Variable& x, double exponent);
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
Variable square(const Variable& x);
Variable abs(const Variable& x);            // its gradient at 0 is 0
Variable rsqrt_or_zero(const Variable& x);  // 1 / sqrt(x); at 0 it and its gradient are 0
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
Variable relu(const Variable& x);
Variable gelu(const Variable& x);            // x Phi(x), exact
Variable silu(const Variable& x);            // x sigmoid(x)
Variable elu_plus_one(const Variable& x);    // x + 1 above 0, else e^x
Variable unary(Unary f, const Variable& x);  // a function that is chosen at run time (core/functions.h)
// a where the condition (bool) is true, else b.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);

// The same numbers in another floating type; x itself if it has this type already.
Variable cast(const Variable& x, DType dtype);

// ---- shapes (ops/strided_copy.cpp). Negative axes count from the end.
Variable reshape(const Variable& x, const Shape& shape);
Variable reshape(const Variable& x, std::initializer_list<int64_t> sizes);  // one may be -1: the size that is left
Variable permute(const Variable& x, const Axes& axes);                      // axis i of the result is axes[i] of x
Variable slice(const Variable& x, int axis, int64_t begin, int64_t end);    // positions [begin, end)
// Error: there are no parts, or their other axes differ.
Variable concat(const std::vector<Variable>& parts, int axis);
Variable stack(const std::vector<Variable>& parts, int axis);  // along a new axis
Variable broadcast_to(const Variable& x, const Shape& shape);

// ---- reductions (ops/reduce.cpp), over all elements to a scalar, or over some axes. These disappear; with `keep` they
// have one element.
Variable sum(const Variable& x);
Variable sum(const Variable& x, const Axes& axes, bool keep = false);
Variable mean(const Variable& x);
Variable mean(const Variable& x, const Axes& axes, bool keep = false);
Variable max(const Variable& x);  // the first of equal elements gets the gradient; a NaN is the largest
Variable max(const Variable& x, const Axes& axes, bool keep = false);

// ---- matrices (ops/gemm.cpp)
// op(a) op(b): [..., m, k] and [..., k, n] -> [..., m, n]; one operand may be a single matrix. A transposed operand has
// the shape [..., k, m] or [..., n, k]. Error: sizes disagree.
Variable matmul(const Variable& a, const Variable& b, bool transpose_a = false, bool transpose_b = false);
// activation(x weight^T + bias): [..., in], [out, in], [out] -> [..., out]. bias may be undefined.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, std::optional<Unary> activation = {});

// ---- rows
Variable softmax(const Variable& x);      // over the last axis (ops/softmax.cpp)
Variable log_softmax(const Variable& x);  // NaN in a row of minus infinities (ops/composed.cpp)
// Rows of unit length, over the last axis; a row of zeros stays zeros, with gradient 0 (ops/composed.cpp).
Variable l2_normalize(const Variable& x);
// (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (ops/layer_norm.cpp).
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double epsilon = 1e-5);
// 0 with probability p, else scaled by 1 / (1 - p) (ops/dropout.cpp).
Variable dropout(const Variable& x, double p, Draw draw);
// residual + dropout(x) in one pass; both have one shape.
Variable dropout_add(const Variable& x, double p, Draw draw, const Variable& residual);
// Rows of table [n, cols] at index [...] int32: [..., cols]; -1 gives zeros (ops/rows.cpp).
Variable gather_rows(const Variable& table, const Tensor& index);
// One column of each row of x [..., C], columns int32 [...] -> [...]; column -1 gives 0.
Variable gather_columns(const Variable& x, const Tensor& columns);

// ---- losses, to a scalar unless said
// Mean of -log softmax(logits)[target] over rows whose target is not negative: [..., classes], int32 [...] -> scalar
// (ops/cross_entropy.cpp).
Variable cross_entropy(const Variable& logits, const Tensor& targets);
// -log p of each target, summed over its alignments to frames, CTC (ops/ctc_loss.cpp): logits [B, T, K], int32 [B, U],
// [B], [B] -> [B].
Variable ctc_loss(const Variable& logits, const Tensor& targets, const Tensor& frames, const Tensor& target_lengths,
                  int blank = 0);
// Mean of -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) for logits x and targets t in [0, 1].
Variable binary_cross_entropy(const Variable& logits, const Variable& targets);
Variable mean_squared_error(const Variable& x, const Variable& target);

// ---- attention: q [B, N, H, D], k [B, S, H, D], v [B, S, H, M] -> [B, N, H, M]
// softmax(scale q k^T + mask) v, in tiles (ops/attention.cpp).
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options = {});
// The mean of x [B, N, H, D] over each cluster: [B, C, H, D] (ops/segment_mean.cpp; equation 3).
Variable segment_mean(const Variable& x, const Groups& groups);
// Each query gets its cluster's row of x [B, C, H, M]: [B, N, H, M] (equation 6).
Variable segment_broadcast(const Variable& x, const Groups& groups);

// Attention of centroids, split into their `top` top keys and the rest (ops/centroid_topk.cpp).
struct TopKeysAndRest {
  Tensor topk;    // int32 [B, H, C, top], without gradient
  Variable mass;  // [B, H, C]: sum of the attention to the top keys (equation 9)
  Variable rest;  // [B, C, H, M]: sum over the other keys of attention times value
};
// `given`: the top keys; if undefined, the operation chooses them (core/attention_ops.h).
TopKeysAndRest centroid_topk(const Variable& centroids, const Variable& k, const Variable& v, int64_t top,
                             const AttentionOptions& options = {}, const Tensor& given = {});
// Each query's own attention over its cluster's top keys, times the mass, plus the rest (ops/topk_attention.cpp;
// equations 10 and 11).
Variable topk_attention(const Variable& q, const Variable& k, const Variable& v, const Groups& groups,
                        const Tensor& topk, const Variable& mass, const Variable& rest,
                        const AttentionOptions& options = {});

// ---- lsh: attention in buckets, with the queries as keys
// Attention within chunks of positions sorted by bucket, over the keys of all rounds (ops/chunk_attention.cpp). The
// groups are those of the buckets, as partitions of [B, H * rounds, N]. A key counts once for each round in which a
// query sees it; a query that sees no other key gets its own value. Dropout is by key: for all queries of a head at
// once. Errors: the numbers of keys and queries differ; the groups have another shape; chunk < 1.
Variable chunk_attention(const Variable& q, const Variable& k, const Variable& v, const Groups& groups,
                         const BucketOptions& buckets, const AttentionOptions& options = {});

}  // namespace cairn
