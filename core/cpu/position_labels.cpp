#include "core/kernels/position_labels.h"

#include "core/parallel.h"

namespace cairn::cpu {

void position_labels(Stream, GroupSize size, const int32_t* lengths, bool shift, int32_t* labels) {
  parallel_tasks(size.B * size.H, [=](int64_t batch_head) {
    const int64_t n = lengths ? lengths[batch_head / size.H] : size.N;
    for (int64_t i = 0; i < size.N; ++i)
      labels[batch_head * size.N + i] = i < n ? position_label(i, n, size.C, shift) : -1;
  });
}

}  // namespace cairn::cpu
