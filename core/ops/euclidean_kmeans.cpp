#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/euclidean_kmeans.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor euclidean_kmeans(const Tensor& q, const Tensor& lengths, int64_t clusters, int iterations, Draw draw) {
  check_operands("euclidean_kmeans", {{"q", q}});
  check(q.rank() == 4, "euclidean_kmeans: expected q [B, N, H, D], got ", q.shape());
  check_clusters("euclidean_kmeans", clusters, 1, q.size(1));
  check<UsageError>(iterations >= 0, "euclidean_kmeans: iterations = ", iterations, ", expected at least 0");
  const EuclideanSize size{q.size(0), q.size(2), q.size(1), q.size(3), clusters, iterations};
  check_lengths("euclidean_kmeans", "lengths", lengths, size.B, size.N, q.device());
  Tensor labels({size.B, size.H, size.N}, DType::int32, q.device());
  CAIRN_RUN("euclidean_kmeans", q,
            euclidean_kmeans<T>(stream, visited(size, labels.elements()), head_view<T>(q),
                                lengths.defined() ? lengths.data<int32_t>() : nullptr, draw.for_kernel(size.H),
                                labels.mutable_data<int32_t>()));
  return labels;
}

}  // namespace cairn
