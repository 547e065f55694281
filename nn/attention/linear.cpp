// linear: the weight of key j for query i is phi(q_i) . phi(k_j) over its sum over keys, with phi(x) = elu(x) + 1
// (Katharopoulos et al. 2020). A product instead of an exponential, so that the keys and values are summed up once for
// all queries, at a cost of N D M.
//
// Deviation: dropout. Single weights do not exist to be dropped, so a key is dropped for all queries of a head at once:
// its value leaves the numerator, while the values of other keys are scaled by 1 / (1 - p).
#include <algorithm>
#include <cmath>

#include "nn/attention/attention.h"
#include "nn/attention/layout.h"

namespace cairn {
namespace {

// Causal sums over keys go from chunk to chunk of so many positions.
constexpr int64_t chunk = 128;

// phi(x), and 0, which is phi(minus infinity), beyond the lengths.
Variable features(const Variable& x, const Tensor& lengths) {
  return elu_plus_one(with_beyond(heads_first(x), lengths, -INFINITY));
}

// x [B, H, N, D] as [B, H, chunks, chunk, D], filled up with zeros.
Variable in_chunks(const Variable& x, int64_t chunks) {
  const int64_t B = x.size(0), H = x.size(1), missing = chunks * chunk - x.size(2), D = x.size(3);
  return reshape(concat({x, constant(0, {B, H, missing, D}, x)}, 2), {B, H, chunks, chunk, D});
}

// A matrix [n, n] of ones where row and column compare like that, and zeros elsewhere.
Tensor ones_where(Compare column_and_row, int64_t n, const Variable& like) {
  const Tensor position = arange(n, like.device());
  return compare(column_and_row, position, position.reshape({n, 1})).cast(like.dtype());
}

// For each query i the sum over keys j of (q_i . k_j) v_j; in the causal case over j <= i.
Variable weighed_sums(const Variable& q, const Variable& k, const Variable& v, bool causal) {
  if (!causal) return matmul(q, matmul(k, v, true));
  const int64_t B = q.size(0), H = q.size(1), N = q.size(2), D = q.size(3), M = v.size(3);
  const int64_t chunks = std::max<int64_t>(1, (std::max(N, k.size(2)) + chunk - 1) / chunk);
  const Variable queries = in_chunks(q, chunks), keys = in_chunks(k, chunks), values = in_chunks(v, chunks);
  // Keys of earlier chunks: the sums of all of them. Keys of the query's own: their weights, one by one.
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
    if (q.dtype() == DType::bfloat16) {  // sums, and gradients that cancel, need more digits than it has
      const auto wide = [](const Variable& x) { return cast(x, DType::float32); };
      return cast((*this)(wide(q), wide(k), wide(v), mask, context), DType::bfloat16);
    }
    const AttentionDropout drop = context.weights_dropout(Purpose::attention_dropout);
    const Variable phi_q = features(q, mask.query_lengths), phi_k = features(k, mask.key_lengths);
    const Variable ones = constant(1, {k.size(0), k.size(2), k.size(1), 1}, k);
    Variable values = with_beyond(heads_first(v), mask.key_lengths, 0);
    if (drop.p > 0) values = values * dropout(ones, drop.p, drop.draw);
    const Variable numerators = weighed_sums(phi_q, phi_k, values, mask.causal);
    const Variable denominators = weighed_sums(phi_q, phi_k, ones, mask.causal);
    // Where all weights are so small that gradients, sums over 1 / denominator, might overflow, they count as 0.
    const Variable smallest = constant(0x1p-100, {}, q);
    const Tensor vanish = compare(Compare::less, denominators.value(), smallest.value());
    return heads_first(divide_or_zero(numerators, where(vanish, constant(0, {}, q), denominators)));
  }
  double flops(const AttentionWork& work) const override { return work.attend(work.head_size); }
};

}  // namespace

extern const AttentionVariant linear_variant{
    "linear", "weights phi(q) . phi(k) with phi(x) = elu(x) + 1, in linear time; without the option scale",
    [](SpecReader& spec) -> std::unique_ptr<Attention> {
      spec.without("scale", "the weights of linear attention are not made of scores");
      return std::make_unique<LinearAttention>();
    }};

}  // namespace cairn
