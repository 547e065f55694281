#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/hamming_kmeans.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor hamming_kmeans(const Tensor& codes, const Tensor& lengths, int64_t clusters, int iterations, Draw draw) {
  const Sizes s = expect("hamming_kmeans", {of_type(DType::uint64, "codes", codes, "B H N"),
                                            optional(of_type(DType::int32, "lengths", lengths, "B"))});
  check_clusters("hamming_kmeans", clusters, 1, s['N']);
  check<UsageError>(iterations >= 0, "hamming_kmeans: iterations = ", iterations, ", expected at least 0");
  check_values("hamming_kmeans", "lengths", lengths, 0, s['N']);
  Tensor labels(codes.shape(), DType::int32, codes.device());
  const KMeansSize size{s['B'], s['H'], s['N'], clusters, iterations};
  CAIRN_CALL("hamming_kmeans", codes,
             hamming_kmeans(stream, unless_empty(size, labels.elements()), codes.data<uint64_t>(),
                            data_or_null<int32_t>(lengths), draw, labels.mutable_data<int32_t>()));
  return labels;
}

}  // namespace cairn
