// linear: the weight of key j for query i is phi(q_i) . phi(k_j), divided by the sum of these products over all keys,
// with phi(x) = elu(x) + 1 (Katharopoulos et al. 2020). There is no exponential of a score, so keys and values are
// summed once for all queries: (N + S) D M operations. If causal, the sums need N (D + 128) + D^2 N / 128 elements.
//
// Deviation: single weights do not exist, so dropout drops a key for all queries of a head at once. Its value leaves
// the numerator, and the values of other keys are scaled by 1 / (1 - p).
#include <algorithm>
#include <cmath>

#include "nn/attention/attention.h"
#include "nn/attention/layout.h"

namespace cairn {
namespace {

constexpr int64_t chunk = 128;  // positions; causal sums go from chunk to chunk

// phi(x); beyond the lengths 0, which is phi(minus infinity).
Variable features(const Variable& x, const Tensor& lengths) {
  return elu_plus_one(with_beyond(heads_first(x), lengths, -INFINITY));
}

// x [B, H, N, D], padded with zeros, as [B, H, chunks, chunk, D].
Variable in_chunks(const Variable& x, int64_t chunks) {
  const int64_t B = x.size(0), H = x.size(1), missing = chunks * chunk - x.size(2), D = x.size(3);
  return reshape(concat({x, constant(0, {B, H, missing, D}, x)}, 2), {B, H, chunks, chunk, D});
}

// [n, n]: 1 where the column compares with the row as given, else 0.
Tensor ones_where(Compare column_and_row, int64_t n, const Variable& like) {
  const Tensor position = arange(n, like.device());
  return compare(column_and_row, position, position.reshape({n, 1})).cast(like.dtype());
}

// For each query i the sum of (q_i . k_j) v_j over all keys j; if causal, over j <= i.
Variable weighted_sums(const Variable& q, const Variable& k, const Variable& v, bool causal) {
  if (!causal) return matmul(q, matmul(k, v, true));
  const int64_t B = q.size(0), H = q.size(1), N = q.size(2), D = q.size(3), M = v.size(3);
  const int64_t chunks = std::max<int64_t>(1, (std::max(N, k.size(2)) + chunk - 1) / chunk);
  const Variable queries = in_chunks(q, chunks), keys = in_chunks(k, chunks), values = in_chunks(v, chunks);
  // Earlier chunks contribute their sums; within the query's own chunk, each key has its weight.
  const Variable of_chunk = reshape(matmul(keys, values, true), {B, H, chunks, D * M});
  const Variable before = matmul(Variable(ones_where(Compare::less, chunks, q)), of_chunk);
  const Variable weights = matmul(queries, keys, false, true) * Variable(ones_where(Compare::less_equal, chunk, q));
  const Variable sums = matmul(queries, reshape(before, {B, H, chunks, D, M})) + matmul(weights, values);
  return slice(reshape(sums, {B, H, chunks * chunk, M}), 2, 0, N);
}

struct LinearAttention : Attention {
  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    lengths_or_causal_only(mask, "it has sums over keys, not weights of single pairs");
    if (q.dtype() == DType::bfloat16) {  // too few digits for these sums, and for gradients that cancel
      const auto wide = [](const Variable& x) { return cast(x, DType::float32); };
      return cast((*this)(wide(q), wide(k), wide(v), mask, context), DType::bfloat16);
    }
    const Dropout drop = context.weights_dropout(Purpose::attention_dropout);
    const Variable phi_q = features(q, mask.query_lengths), phi_k = features(k, mask.key_lengths);
    const Variable ones = constant(1, {k.size(0), k.size(2), k.size(1), 1}, k);
    Variable values = with_beyond(heads_first(v), mask.key_lengths, 0);
    if (drop.p > 0) values = values * dropout(ones, drop.p, drop.draw);
    const Variable numerators = weighted_sums(phi_q, phi_k, values, mask.causal);
    const Variable denominators = weighted_sums(phi_q, phi_k, ones, mask.causal);
    // Gradients have 1 / denominator as a factor. A denominator so small that they might overflow counts as 0.
    const Variable smallest = constant(0x1p-100, {}, q);
    const Tensor vanish = compare(Compare::less, denominators, smallest);
    return heads_first(divide_or_zero(numerators, where(vanish, constant(0, {}, q), denominators)));
  }
  double flops(const AttentionWork& work) const override { return work.attend(work.head_size); }
};

}  // namespace

extern const AttentionVariant linear_variant{
    "linear", "weights phi(q) . phi(k) with phi(x) = elu(x) + 1, in linear time",
    [](SpecReader&) -> std::unique_ptr<Attention> { return std::make_unique<LinearAttention>(); }, /*has_scale=*/false};

}  // namespace cairn
