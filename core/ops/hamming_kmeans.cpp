#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/hamming_kmeans.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor hamming_kmeans(const Tensor& codes, const Tensor& lengths, int64_t clusters, int bits, int iterations,
                      Draw draw) {
  check_tensor("hamming_kmeans", "codes", codes, DType::uint64, codes.device());
  check(codes.rank() == 3, "hamming_kmeans: expected codes [B, H, N], got ", codes.shape());
  check_clusters("hamming_kmeans", clusters, 1, codes.size(2));
  check<UsageError>(iterations >= 0, "hamming_kmeans: iterations = ", iterations, ", expected at least 0");
  check_bits("hamming_kmeans", bits);
  check_lengths("hamming_kmeans", "lengths", lengths, codes.size(0), codes.size(2), codes.device());
  Tensor labels(codes.shape(), DType::int32, codes.device());
  const KMeansSize size{codes.size(0), codes.size(1), codes.size(2), clusters, bits, iterations};
  CAIRN_DISPATCH("hamming_kmeans", uint64_t, codes,
                 hamming_kmeans(current_stream(codes.device()), visited(size, labels.elements()),
                                codes.data<uint64_t>(), lengths.defined() ? lengths.data<int32_t>() : nullptr,
                                draw.for_kernel(codes.size(1)), labels.mutable_data<int32_t>()));
  return labels;
}

}  // namespace cairn
