// Groups of consecutive queries: query i of n valid ones is in group floor(i C / n). core/kernels/position_labels.h has
// the formula for every device. The lengths are in device memory, so the host does not wait.
//
// Shapes. labels [B, H, N], lengths [B].
// Launch. A thread takes a query.
// Traffic: 4 bytes a query, the floor. Bound by integer divisions, about a hundred instructions a query.
#include "core/kernels/position_labels.h"

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;

__global__ void __launch_bounds__(threads)
    label_queries(GroupSize size, const int32_t* lengths, bool shift, int32_t* labels) {
  const int64_t query = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (query >= size.B * size.H * size.N) return;
  const int64_t batch_head = query / size.N, i = query % size.N, n = lengths ? lengths[batch_head / size.H] : size.N;
  labels[query] = i < n ? position_label(i, n, size.C, shift) : -1;
}

}  // namespace

void position_labels(Stream stream, GroupSize size, const int32_t* lengths, bool shift, int32_t* labels) {
  const int64_t queries = size.B * size.H * size.N;
  if (queries == 0) return;
  launch(label_queries, {ceil_div(queries, threads), threads, 0, stream}, size, lengths, shift, labels);
}

}  // namespace cairn::gpu
