#include "core/ops/attention_checks.h"

#include <cmath>
#include <cstdint>

namespace cairn {

void check_lengths(const char* operation, const char* argument, const Tensor& lengths, int64_t B, int64_t maximum,
                   Device device) {
  if (!lengths.defined()) return;
  check_tensor(operation, argument, lengths, DType::int32, device, {B});
  if (device != Device::cpu) return;
  for (int64_t b = 0; b < B; ++b) {
    const int32_t length = lengths.data<int32_t>()[b];
    check(length >= 0 && length <= maximum, operation, ": ", argument, "[", b, "] is ", length, ", expected 0 to ",
          maximum);
  }
}

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

GroupSize group_size(const Groups& groups) {
  const Shape& shape = groups.labels().shape();
  return {shape[0], shape[1], shape[2], groups.clusters()};
}

GroupView view(const Groups& groups) {
  return {groups.labels().data<int32_t>(), groups.permutation().data<int32_t>(), groups.offsets().data<int32_t>()};
}

void check_clusters(const char* operation, int64_t clusters, int64_t minimum, int64_t N) {
  check<UsageError>(clusters >= minimum, operation, ": clusters = ", clusters, ", expected at least ", minimum);
  check<UsageError>(clusters <= INT32_MAX, operation, ": clusters = ", clusters, ", expected at most ", INT32_MAX);
  check(N <= INT32_MAX, operation, ": ", N, " queries, expected at most ", INT32_MAX);
}

void check_bits(const char* operation, int64_t bits) {
  check<UsageError>(bits >= 1 && bits <= 64, operation, ": bits = ", bits, ", expected 1 to 64");
}

void check_saved(const char* operation, const AttentionSize& size, const Tensor& q, const Tensor& out,
                 const NamedTensor& numbers, const NamedTensor& gradient) {
  const Shape shape{size.B, size.N, size.H, size.M};
  check_operands(operation, {{"q", q}, {"the saved output", out}, gradient});
  check_shape(operation, "the saved output", out, shape);
  check_shape(operation, gradient.name, gradient.tensor, shape);
  check_tensor(operation, numbers.name, numbers.tensor, sums_of(q), q.device(), {size.B, size.H, size.N});
}

void check_top_keys(const char* operation, const char* argument, const Tensor& topk, const Shape& shape, int64_t S,
                    Device device) {
  check_tensor(operation, argument, topk, DType::int32, device, shape);
  check_indices(operation, "key", topk, -1, S);
  if (topk.device() != Device::cpu) return;
  const int32_t* keys = topk.data<int32_t>();
  for (int64_t i = 1; i < topk.elements(); ++i)
    check(i % topk.size(3) == 0 || keys[i] == -1 || (keys[i - 1] != -1 && keys[i - 1] < keys[i]), operation,
          ": expected top keys to rise and then be -1, got ", keys[i - 1], " before ", keys[i]);
}

AttentionSize attention_size(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options) {
  check_operands(operation, {{"q", q}, {"k", k}, {"v", v}});
  check(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, operation,
        ": expected q [B, N, H, D], k [B, S, H, D], v [B, S, H, M], got ", q.shape(), ", ", k.shape(), ", ", v.shape());
  const AttentionSize size{q.size(0), q.size(2), q.size(1), k.size(1), q.size(3), v.size(3), options.scale};
  check(k.size(0) == size.B && k.size(2) == size.H && k.size(3) == size.D, operation, ": k of shape ", k.shape(),
        " does not match q of shape ", q.shape(), ": expected [", size.B, ", S, ", size.H, ", ", size.D, "]");
  check(v.size(0) == size.B && v.size(2) == size.H && v.size(1) == size.S, operation, ": v of shape ", v.shape(),
        " does not match k of shape ", k.shape(), ": expected [", size.B, ", ", size.S, ", ", size.H, ", M]");
  check(size.N <= INT32_MAX && size.S <= INT32_MAX, operation, ": ", size.N, " queries and ", size.S,
        " keys, expected at most ", INT32_MAX);
  const AttentionMask& mask = options.mask;
  check_lengths(operation, "query_lengths", mask.query_lengths, size.B, size.N, q.device());
  check_lengths(operation, "key_lengths", mask.key_lengths, size.B, size.S, q.device());
  if (mask.allowed.defined()) {
    const Shape full{size.B, size.H, size.N, size.S};
    check_tensor(operation, "the mask", mask.allowed, DType::boolean, q.device());
    check(mask.allowed.rank() <= 4 && broadcast(mask.allowed.shape(), full, operation) == full, operation,
          ": a mask of shape ", mask.allowed.shape(), " does not broadcast to [B, H, N, S] = ", full);
  }
  check(mask.pattern.stride >= 0 && mask.pattern.global >= 0, operation, ": expected a pattern's stride and global ",
        "positions to be at least 0, got ", mask.pattern.stride, " and ", mask.pattern.global);
  check(options.dropout.p >= 0 && options.dropout.p <= 1, operation, ": expected a dropout probability, got ",
        options.dropout.p);
  AttentionSize result = size;
  if (result.scale == 0) result.scale = size.D > 0 ? 1 / std::sqrt(double(size.D)) : 1;
  return result;
}

}  // namespace cairn
