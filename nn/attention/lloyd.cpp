#include "nn/attention/lloyd.h"

#include <cmath>

#include "nn/attention/layout.h"

namespace cairn {
namespace {

// In float32 if x is bfloat16. The tape records nothing here, because no operand has a gradient.
Variable widened(const Tensor& x) { return Variable(x.dtype() == DType::bfloat16 ? x.cast(DType::float32) : x); }

// K^T K of the keys k [B, S, H, D] minus their mean: [B, H, D, D].
Tensor metric_of(const Tensor& k, const Tensor& lengths) {
  const Variable keys = with_beyond(heads_first(widened(k)), lengths, 0);
  const Variable count = lengths.defined() ? Variable(lengths.cast(keys.dtype()).reshape({k.size(0), 1, 1, 1}))
                                           : constant(double(k.size(1)), {}, keys);
  const Variable centered = with_beyond(keys - divide_or_zero(sum(keys, {2}, true), count), lengths, 0);
  return matmul(centered, centered, true);
}

// Labels [B, H, N]: `before` in batch elements whose length [B] is at most `most`, else `after`.
Tensor keep_up_to(int64_t most, const Tensor& lengths, const Tensor& before, const Tensor& after) {
  if (!lengths.defined()) return after;
  const Tensor limit = Tensor::full({}, double(most), DType::int32, lengths.device());
  return where(compare(Compare::less_equal, lengths.reshape({lengths.size(0), 1, 1}), limit), before, after);
}

// With A the metric and m_c the mean of cluster c, row c is (A m_c, -m_c . A m_c / 2). Its product with (q, 1) is the
// largest for the nearest m_c. An empty cluster has minus infinity in the last column. means: [B, H, C, D].
Variable rows_of(const Variable& means, const Tensor& metric, const Clusters& clusters) {
  const int64_t C = clusters.count();
  const Variable seen = metric.defined() ? matmul(means, Variable(metric)) : means;
  const Variable shift = -0.5 * sum(means * seen, {3}, true);
  const Tensor& ends = clusters.offsets();  // [B, H, C + 1]
  const Tensor empty = compare(Compare::equal, slice(ends, 2, 0, C), slice(ends, 2, 1, C + 1)).reshape(shift.shape());
  return concat({seen, where(empty, constant(-INFINITY, {}, shift), shift)}, 3);
}

}  // namespace

Tensor lloyd(const Tensor& q, const Tensor& lengths, const Tensor& first, int64_t C, int steps, const Tensor& metric) {
  Tensor labels = first;
  const Variable wide = widened(q);
  const Variable with_ones = concat({heads_first(wide), constant(1, {q.size(0), q.size(2), q.size(1), 1}, wide)}, 3);
  Tensor inside;
  if (lengths.defined()) inside = within(lengths, q.size(1)).reshape({q.size(0), 1, q.size(1)});
  const Tensor none = Tensor::full({}, -1, DType::int32, q.device());
  for (int step = 0; step < steps; ++step) {
    const Clusters clusters = clusters_of(labels, C);
    const Variable means = heads_first(cluster_mean(wide, clusters));
    labels = argmax(matmul(with_ones, rows_of(means, metric, clusters), false, true));
    if (lengths.defined()) labels = where(inside, labels, none);
  }
  return keep_up_to(C, lengths, first, labels);
}

Tensor refine(const Tensor& q, const Tensor& query_lengths, const Tensor& k, const Tensor& key_lengths,
              const Tensor& labels, int64_t C, int steps) {
  if (steps == 0 || C >= q.size(1) || k.size(1) == 0) return labels;  // before the metric is computed
  const Tensor refined = lloyd(q, query_lengths, labels, C, steps, metric_of(k, key_lengths));
  return keep_up_to(0, key_lengths, labels, refined);
}

}  // namespace cairn
