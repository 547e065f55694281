#include "core/ops/attention_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace cairn {

Mask kernel_mask(const AttentionMask& mask, const AttentionSize& size) {
  Mask result;
  if (mask.query_lengths.defined()) result.query_lengths = mask.query_lengths.data<int32_t>();
  if (mask.key_lengths.defined()) result.key_lengths = mask.key_lengths.data<int32_t>();
  result.causal = mask.causal;
  result.pattern = mask.pattern;
  if (mask.allowed.defined()) {
    const int64_t full[4] = {size.B, size.H, size.N, size.S};
    int64_t strides[4] = {}, stride = 1;
    for (int i = 1; i <= mask.allowed.rank(); ++i) {
      if (mask.allowed.size(-i) == full[4 - i]) strides[4 - i] = stride;
      if (mask.allowed.size(-i) == 1) strides[4 - i] = 0;
      stride *= mask.allowed.size(-i);
    }
    result.allowed = reinterpret_cast<const uint8_t*>(mask.allowed.data<bool>());
    result.allowed_batch = strides[0], result.allowed_head = strides[1];
    result.allowed_query = strides[2], result.allowed_key = strides[3];
  }
  return result;
}

ClusterSizes sizes(const Clusters& clusters) {
  const Shape& shape = clusters.labels().shape();
  return {shape[0], shape[1], shape[2], clusters.count()};
}

ClusterView view(const Clusters& clusters) {
  return {clusters.labels().data<int32_t>(), clusters.permutation().data<int32_t>(),
          clusters.offsets().data<int32_t>()};
}

void check_clusters(const char* operation, int64_t clusters, int64_t minimum, int64_t N) {
  check<UsageError>(clusters >= minimum, operation, ": clusters = ", clusters, ", expected at least ", minimum);
  check<UsageError>(clusters <= INT32_MAX, operation, ": clusters = ", clusters, ", expected at most ", INT32_MAX);
  check(N <= INT32_MAX, operation, ": ", N, " queries, expected at most ", INT32_MAX);
}

void check_top_keys(const char* operation, const Tensor& topk, int64_t S) {
  check_values(operation, "topk", topk, -1, S - 1);
  if (topk.device() != Device::cpu) return;
  const int32_t* keys = topk.data<int32_t>();
  for (int64_t i = 1; i < topk.elements(); ++i)
    check(i % topk.size(3) == 0 || keys[i] == -1 || (keys[i - 1] != -1 && keys[i - 1] < keys[i]), operation,
          ": expected top keys to rise and then be -1, got ", keys[i - 1], " before ", keys[i]);
}

Sizes expect_attention(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options, std::initializer_list<Operand> more) {
  const AttentionMask& mask = options.mask;
  const Sizes s = expect(operation, {{"q", q, "B N H D"},
                                     {"k", k, "B S H D"},
                                     {"v", v, "B S H M"},
                                     optional(of_type(DType::int32, "query_lengths", mask.query_lengths, "B")),
                                     optional(of_type(DType::int32, "key_lengths", mask.key_lengths, "B")),
                                     optional(of_type(DType::boolean, "the mask", mask.allowed, nullptr))});
  check(s['N'] <= INT32_MAX && s['S'] <= INT32_MAX, operation, ": ", s['N'], " queries and ", s['S'],
        " keys, expected at most ", INT32_MAX);
  check_values(operation, "query_lengths", mask.query_lengths, 0, s['N']);
  check_values(operation, "key_lengths", mask.key_lengths, 0, s['S']);
  if (mask.allowed.defined()) {
    const Shape full{s['B'], s['H'], s['N'], s['S']};
    check(mask.allowed.rank() <= 4 && broadcast(mask.allowed.shape(), full, operation) == full, operation,
          ": a mask of shape ", mask.allowed.shape(), " does not broadcast to [B, H, N, S] = ", full);
  }
  const Blocks& blocks = mask.pattern.blocks;
  check(blocks.none() ||
            (mask.pattern.window < 0 && std::max(blocks.query_bits, blocks.key_bits) <= 30 && blocks.key_bits >= 0),
        operation, ": expected a pattern with blocks to have no window, and at most 2^30 positions in a block");
  check(mask.pattern.global >= 0, operation, ": expected a pattern's global positions to be at least 0, got ",
        mask.pattern.global);
  check(options.dropout.p >= 0 && options.dropout.p <= 1, operation, ": expected a dropout probability, got ",
        options.dropout.p);
  return expect(operation, more, s);
}

AttentionSize kernel_size(const Sizes& s, const AttentionOptions& options) {
  const double scale = options.scale != 0 ? options.scale : s['D'] > 0 ? 1 / std::sqrt(double(s['D'])) : 1;
  return {s['B'], s['H'], s['N'], s['S'], s['D'], s['M'], scale};
}

}  // namespace cairn
