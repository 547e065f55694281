#pragma once
// Every differentiable function. ops/<stem>.cpp defines it, forward pass and gradient side by side. Code without
// gradients gives it tensors and takes tensors. The floating operands must agree in dtype and device; the error names
// the one that does not.
#include <initializer_list>
#include <optional>
#include <vector>

#include "autograd/tape.h"
#include "core/attention_ops.h"

namespace cairn {

// ---- elementwise (ops/elementwise.cpp; core/functions.h has the formulas). Operands broadcast as in NumPy. Error:
// they do not broadcast. + - * maximum, where and affine also take int32, without gradient.
Variable unary(Unary op, const Variable& x);
Variable binary(Binary op, const Variable& a, const Variable& b);
// alpha x + beta.
Variable affine(const Variable& x, double alpha, double beta = 0);
Variable operator+(const Variable& a, const Variable& b);
Variable operator-(const Variable& a, const Variable& b);
inline Variable operator*(const Variable& a, const Variable& b) { return binary(Binary::multiply, a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return binary(Binary::divide, a, b); }
inline Variable operator*(double alpha, const Variable& x) { return affine(x, alpha); }
inline Variable operator+(const Variable& x, double beta) { return affine(x, 1, beta); }
inline Variable operator-(const Variable& x) { return affine(x, -1); }
inline Variable operator*(const Variable& x, double alpha) { return affine(x, alpha); }
inline Variable operator/(const Variable& x, double alpha) { return affine(x, 1 / alpha); }
inline Variable operator+(double beta, const Variable& x) { return affine(x, 1, beta); }
inline Variable operator-(const Variable& x, double beta) { return affine(x, 1, -beta); }
inline Variable operator-(double beta, const Variable& x) { return affine(x, -1, beta); }
Variable reciprocal(const Variable& x);  // 1 / x
inline Variable operator/(double alpha, const Variable& x) { return alpha * reciprocal(x); }
// a / b; where b is 0, it and its gradients are 0.
inline Variable divide_or_zero(const Variable& a, const Variable& b) { return binary(Binary::divide_or_zero, a, b); }
// If a = b, a gets the gradient.
inline Variable maximum(const Variable& a, const Variable& b) { return binary(Binary::maximum, a, b); }
inline Variable pow(const Variable& a, const Variable& b) { return binary(Binary::pow, a, b); }
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
Variable gelu(const Variable& x);          // x Phi(x), exact
Variable silu(const Variable& x);          // x sigmoid(x)
Variable elu_plus_one(const Variable& x);  // x + 1 above 0, else e^x
Variable softplus(const Variable& x);      // log(1 + e^x)
// a where the condition (bool) is true, else b.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);

// The same numbers in another floating type; x itself if it has this type already.
Variable cast(const Variable& x, DType dtype);

// ---- shapes (ops/strided_copy.cpp; reshape: ops/reduce.cpp), for tensors of any dtype. Negative axes count from the
// end. Error: an axis is out of range or given twice.
using Axes = std::vector<int>;
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
// The gradient of broadcasting from `shape` to x's shape, which the tape takes: sums over the axes that were stretched
// or added. Of bfloat16 they are float32.
Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- matrices (ops/gemm.cpp)
// op(a) op(b): [..., m, k] and [..., k, n] -> [..., m, n]; one operand may be a single matrix. A transposed operand has
// the shape [..., k, m] or [..., n, k]. Error: sizes disagree.
Variable matmul(const Variable& a, const Variable& b, bool transpose_a = false, bool transpose_b = false);
// activation(x weight^T + bias): [..., in], [out, in], [out] -> [..., out]. bias may be undefined. If x is bfloat16,
// weight and bias may be float32, as in layer_norm: they are rounded, and their gradients are not.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, std::optional<Unary> activation = {});

// ---- rows
Variable softmax(const Variable& x);      // over the last axis (ops/softmax.cpp)
Variable log_softmax(const Variable& x);  // NaN in a row of minus infinities (ops/composed.cpp)
// Rows of unit length, over the last axis; a row of zeros stays zeros, with gradient 0 (ops/composed.cpp).
Variable l2_normalize(const Variable& x);
// (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (ops/layer_norm.cpp).
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double epsilon = 1e-5);
// 0 with probability p, else scaled by 1 / (1 - p) (ops/dropout.cpp). Axis 0 is the axis of examples (see
// Draw::first). Error: p outside [0, 1].
Variable dropout(const Variable& x, double p, Draw draw);
// residual + dropout(x) in one pass; both have one shape.
Variable dropout_add(const Variable& x, double p, Draw draw, const Variable& residual);
// Rows of table [n, cols] at index [...] int32: [..., cols]; -1 gives zeros (ops/rows.cpp). Error (on the CPU): index
// outside [-1, n).
Variable gather_rows(const Variable& table, const Tensor& index);
// One column of each row of x [..., C], columns int32 [...] -> [...]; column -1 gives 0. Error (on the CPU): column
// outside [-1, C).
Variable gather_columns(const Variable& x, const Tensor& columns);

// ---- losses, to a scalar unless said
// Mean of -log softmax(logits)[target] over rows whose target is not negative: [..., classes], int32 [...] -> scalar
// (ops/cross_entropy.cpp). Error (on the CPU): a target is no class.
Variable cross_entropy(const Variable& logits, const Tensor& targets);
// CTC (Graves et al. 2006): minus the log probability of each target, summed over its alignments to frames, where y =
// softmax(logits) (ops/ctc_loss.cpp). logits [B, T, K]; targets int32 [B, U], of which target_lengths int32 [B] count;
// frames int32 [B]: how many of the T frames count. [B]: the loss is infinity, and its gradient 0, where a target does
// not fit into its frames. Error: blank outside [0, K); on the CPU: a length out of range, a label outside [0, K) or
// equal to the blank.
Variable ctc_loss(const Variable& logits, const Tensor& targets, const Tensor& frames, const Tensor& target_lengths,
                  int blank = 0);
// Mean of -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) for logits x and targets t in [0, 1].
Variable binary_cross_entropy(const Variable& logits, const Variable& targets);
Variable mean_squared_error(const Variable& x, const Variable& target);

// ---- attention: q [B, N, H, D], k [B, S, H, D], v [B, S, H, M] -> [B, N, H, M]
// softmax(scale q k^T + mask) v, in tiles (ops/attention.cpp).
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options = {});
// A set of keys, and how the queries attend to them. q [B, N, H, D], k [B, S, H, D], v [B, S, H, M].
struct KeySet {
  Variable q, k, v;
  AttentionOptions options{};
  // If not 1: only keys at distances that are a multiple of it. The pattern counts every `classes`-th position.
  int64_t classes = 1;
  Tensor without{};     // if defined, int32 [B, H, N, any], rising, then -1: these keys of a query are left out. The
                        //   other keys, of all sets, must not weigh less than rounding errors of these
  Clusters clusters{};  // if `only` is defined, int32 [B, H, C, any], rising, then -1: a query attends to the keys of
  Tensor only{};        //   its cluster, whatever the mask says
};
// softmax(scores) v over the keys of all sets together (ops/joined_attention.cpp). Each query has one q for each set;
// B, N, H and M are the same in all. Errors: no sets; a set with classes < 1.
Variable joined_attention(const std::vector<KeySet>& sets);
// The mean of x [B, N, H, D] over each cluster: [B, C, H, D] (ops/cluster_mean.cpp; equation 3).
Variable cluster_mean(const Variable& x, const Clusters& clusters);
// Each query gets its cluster's row of x [B, C, H, M]: [B, N, H, M] (equation 6).
Variable cluster_broadcast(const Variable& x, const Clusters& clusters);

// The `top` keys with the largest scores of each query, of equal ones the first: int32 [B, H, N, top], rising, then -1.
// Without gradient (ops/centroid_topk.cpp). Error: top < 1.
Tensor top_keys(const Tensor& q, const Tensor& k, int64_t top, const AttentionOptions& options = {});
// Attention of each query to its cluster's row of topk, int32 [B, H, C, top] (ops/topk_attention.cpp).
Variable topk_attention(const Variable& q, const Variable& k, const Variable& v, const Clusters& clusters,
                        const Tensor& topk, const AttentionOptions& options = {});
// Equations 3, 4 and 9 to 11 (ops/improved_clustered.cpp): each query attends by itself to the top keys of its
// cluster's centroid, times the mass that the centroid gives them, plus the rest of the centroid's attention.
// `options` are of the queries, `rest_options` of the centroids. `given`: the top keys; if undefined, those with the
// largest scores. Without mass_gradient, the mass is a constant.
struct ImprovedClusteredResult {
  Variable out;
  Tensor topk, mass;  // int32 [B, H, C, top], [B, H, C]
};
ImprovedClusteredResult improved_clustered(const Variable& q, const Variable& k, const Variable& v,
                                           const Clusters& clusters, int64_t top, const AttentionOptions& options = {},
                                           const AttentionOptions& rest_options = {}, bool mass_gradient = true,
                                           const Tensor& given = {});

// ---- lsh: attention in buckets
// Attention within chunks of positions sorted by bucket, over the keys of all rounds (ops/chunk_attention.cpp). The
// buckets are partitions of [B, H * rounds, N]. A key counts once for each round in which a query sees it; a query that
// sees no other key gets its own value. Dropout is by key: for all queries of a head at once. Errors: the numbers of
// keys and queries differ; the buckets have another shape; chunk < 1.
//
// With key_buckets, [B, H * rounds, S] and as many of them, the keys are sorted apart and are not the queries (see
// core/kernels/chunk_attention.h). Then position i may attend to key i, a query that sees no key gets 0, and N and S
// may differ.
Variable chunk_attention(const Variable& q, const Variable& k, const Variable& v, const Clusters& buckets,
                         const BucketOptions& bucket_options, const AttentionOptions& options = {},
                         const Clusters& key_buckets = {});

}  // namespace cairn
