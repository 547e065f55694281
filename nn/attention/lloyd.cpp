#include "nn/attention/lloyd.h"

#include <cmath>

#include "core/attention_ops.h"
#include "core/ops.h"

namespace cairn {
namespace {

Tensor widened(const Tensor& x) { return x.dtype() == DType::bfloat16 ? x.cast(DType::float32) : x; }

// x [B, N, H, D] as [B, H, N, D], and back.
Tensor heads_first(const Tensor& x) { return permute(x, {0, 2, 1, 3}); }

// x [B, H, S, D] with zeros beyond the lengths.
Tensor zeros_beyond(const Tensor& x, const Tensor& lengths) {
  if (!lengths.defined()) return x;
  const Tensor inside = within(lengths, x.size(2)).reshape({x.size(0), 1, x.size(2), 1});
  return where(inside, x, Tensor::zeros({}, x.dtype(), x.device()));
}

// K^T K of the keys minus their mean: [B, H, D, D].
Tensor metric_of(const Tensor& k, const Tensor& lengths) {
  const Tensor keys = zeros_beyond(heads_first(widened(k)), lengths);
  const Tensor count = lengths.defined() ? lengths.cast(keys.dtype()).reshape({k.size(0), 1, 1, 1})
                                         : Tensor::full({}, double(k.size(1)), keys.dtype(), k.device());
  const Tensor mean = binary(Binary::divide_or_zero, sum(keys, {2}, true), count);
  const Tensor centered = zeros_beyond(binary(Binary::subtract, keys, mean), lengths);
  return matmul(centered, centered, true);
}

// The labels before [B, H, N] in batch elements whose length [B] is at most `most`, else those after.
Tensor keep_up_to(int64_t most, const Tensor& lengths, const Tensor& before, const Tensor& after) {
  if (!lengths.defined()) return after;
  const auto floats = [](const Tensor& x) { return x.cast(DType::float32); };  // `where` takes no whole numbers
  const Tensor limit = Tensor::full({}, double(most), DType::float32, lengths.device());
  const Tensor short_ones = compare(Compare::less_equal, floats(lengths).reshape({lengths.size(0), 1, 1}), limit);
  return where(short_ones, floats(before), floats(after)).cast(DType::int32);
}

// Row c, for the mean m_c of cluster c, is (A m_c, -m_c . A m_c / 2): its product with (q, 1) is the largest where m_c
// is the nearest to q. An empty cluster has minus infinity in the last column. means: [B, H, C, D].
Tensor rows_of(const Tensor& means, const Tensor& metric, const Groups& groups) {
  const int64_t C = groups.clusters();
  const Tensor seen = metric.defined() ? matmul(means, metric) : means;
  const Tensor shift = affine(sum(binary(Binary::multiply, means, seen), {3}, true), -0.5);
  const Tensor ends = groups.offsets().cast(DType::float32);  // [B, H, C + 1]
  const Tensor empty = compare(Compare::equal, slice(ends, 2, 0, C), slice(ends, 2, 1, C + 1)).reshape(shift.shape());
  return concat({seen, where(empty, Tensor::full({}, -INFINITY, shift.dtype(), shift.device()), shift)}, 3);
}

}  // namespace

Tensor lloyd(const Tensor& q, const Tensor& lengths, Tensor labels, int64_t clusters, int steps, const Tensor& metric) {
  const Tensor wide = widened(q);
  const Tensor ones = Tensor::full({q.size(0), q.size(2), q.size(1), 1}, 1, wide.dtype(), q.device());
  const Tensor with_ones = concat({heads_first(wide), ones}, 3);
  for (int step = 0; step < steps; ++step) {
    const Groups groups = group(labels, clusters);
    const Tensor means = heads_first(segment_reduce(Segment::mean, wide, groups));
    labels = argmax(matmul(with_ones, rows_of(means, metric, groups), false, true), lengths);
  }
  return labels;
}

Tensor refine(const Tensor& q, const Tensor& query_lengths, const Tensor& k, const Tensor& key_lengths,
              const Tensor& labels, int64_t clusters, int steps) {
  if (steps == 0 || clusters >= q.size(1) || k.size(1) == 0) return labels;
  const Tensor refined = lloyd(q, query_lengths, labels, clusters, steps, metric_of(k, key_lengths));
  return keep_up_to(0, key_lengths, labels, keep_up_to(clusters, query_lengths, labels, refined));
}

}  // namespace cairn
