#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor segment_reduce(Segment kind, const Tensor& x, const Groups& groups) {
  check_operands("segment_reduce", {{"x", x}});
  check(x.rank() == 4, "segment_reduce: expected x [B, N, H, D], got ", x.shape());
  groups.check("segment_reduce", {x.size(0), x.size(2), x.size(1)}, x.device());
  Tensor out(x.shape().with(1, groups.clusters()), x.dtype(), x.device());
  CAIRN_RUN(
      "segment_reduce", x,
      segment_reduce<T>(stream, kind, group_size(groups), x.size(3), view(groups), head_view<T>(x), head_view<T>(out)));
  return out;
}

Tensor segment_broadcast(Segment kind, const Tensor& x, const Groups& groups) {
  check_operands("segment_broadcast", {{"x", x}});
  check(x.rank() == 4, "segment_broadcast: expected x [B, C, H, D], got ", x.shape());
  check_tensor("segment_broadcast", "labels", groups.labels(), DType::int32, x.device());
  const int64_t N = groups.labels().size(2);
  groups.check("segment_broadcast", {x.size(0), x.size(2), N}, x.device());
  check_shape("segment_broadcast", "x", x, x.shape().with(1, groups.clusters()));
  Tensor out(x.shape().with(1, N), x.dtype(), x.device());
  CAIRN_RUN("segment_broadcast", x,
            segment_broadcast<T>(stream, kind, group_size(groups), x.size(3), view(groups), head_view<T>(x),
                                 head_view<T>(out)));
  return out;
}

}  // namespace cairn
