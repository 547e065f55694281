#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/euclidean_kmeans.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor euclidean_kmeans(const Tensor& q, const Tensor& lengths, int64_t clusters, int iterations, Draw draw) {
  const Sizes s =
      expect("euclidean_kmeans", {{"q", q, "B N H D"}, optional(of_type(DType::int32, "lengths", lengths, "B"))});
  check_clusters("euclidean_kmeans", clusters, 1, s['N']);
  check<UsageError>(iterations >= 0, "euclidean_kmeans: iterations = ", iterations, ", expected at least 0");
  const EuclideanSize size{s['B'], s['H'], s['N'], s['D'], clusters, iterations};
  check_values("euclidean_kmeans", "lengths", lengths, 0, size.N);
  Tensor labels({size.B, size.H, size.N}, DType::int32, q.device());
  CAIRN_RUN("euclidean_kmeans", q,
            euclidean_kmeans<T>(stream, visited(size, labels.elements()), head_view<T>(q),
                                lengths.defined() ? lengths.data<int32_t>() : nullptr, draw.for_kernel(size.H),
                                labels.mutable_data<int32_t>()));
  return labels;
}

}  // namespace cairn
