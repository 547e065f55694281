#pragma once
// What the operations of the attention family share: checks of operands, and their conversion to kernels' operands.
#include <cstdint>
#include <initializer_list>

#include "core/attention_ops.h"
#include "core/ops/checks.h"

namespace cairn {

// ---- checks
// The sizes of q [B, N, H, D], k [B, S, H, D], v [B, S, H, M] and of `more`. Error: operands or options do not fit.
Sizes expect_attention(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options, std::initializer_list<Operand> more = {});
AttentionSize kernel_size(const Sizes& s, const AttentionOptions& options);
// Error: `clusters` is below `minimum`, or int32 does not hold it or N.
void check_clusters(const char* operation, int64_t clusters, int64_t minimum, int64_t N);
// Error (on the CPU): a row of topk [B, H, C, k] does not rise and then hold -1, or has a key outside [-1, S).
void check_top_keys(const char* operation, const Tensor& topk, int64_t S);

// ---- kernels' operands
// The size for a kernel that writes this many elements. If it writes none, B becomes 0, so that it loops over nothing.
template <class Size>
Size unless_empty(Size size, int64_t elements) {
  if (elements == 0) size.B = 0;
  return size;
}
// The view of x [B, N, H, D].
template <class T>
HeadView<const T> head_view(const Tensor& x) {
  return {x.data<T>(), x.size(1) * x.size(2) * x.size(3), x.size(2) * x.size(3), x.size(3)};
}
template <class T>
HeadView<T> head_view(Tensor& x) {
  return {x.mutable_data<T>(), x.size(1) * x.size(2) * x.size(3), x.size(2) * x.size(3), x.size(3)};
}
Mask kernel_mask(const AttentionMask& mask, const AttentionSize& size);
template <class T>
AttentionOperands<T> operands(const AttentionSize& size, const Tensor& q, const Tensor& k, const Tensor& v,
                              const AttentionOptions& options) {
  return {size,
          head_view<T>(q),
          head_view<T>(k),
          head_view<T>(v),
          kernel_mask(options.mask, size),
          {options.dropout.p, options.dropout.draw.for_kernel(size.H)}};
}
ClusterSizes sizes(const Clusters& clusters);
ClusterView view(const Clusters& clusters);

}  // namespace cairn
