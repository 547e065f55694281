#include "core/attention_ops.h"

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor segment_reduce(Segment kind, const Tensor& x, const Groups& groups) {
  const Sizes s = expect("segment_reduce", {{"x", x, "B N H D"}});
  groups.check("segment_reduce", {s['B'], s['H'], s['N']}, x.device());
  Tensor out(x.shape().with(1, groups.clusters()), x.dtype(), x.device());
  CAIRN_RUN(
      "segment_reduce", x,
      segment_reduce<T>(stream, kind, group_size(groups), s['D'], view(groups), head_view<T>(x), head_view<T>(out)));
  return out;
}

Tensor segment_broadcast(Segment kind, const Tensor& x, const Groups& groups, const Tensor& sum) {
  const Sizes s = expect("segment_broadcast", {{"x", x, "B C H D"},
                                               of_type(DType::int32, "labels", groups.labels(), "B H N"),
                                               optional({"the sum", sum, "B N H D"})});
  groups.check("segment_broadcast", groups.labels().shape(), x.device());
  check(s['C'] == groups.clusters(), "segment_broadcast: expected x of shape ", x.shape().with(1, groups.clusters()),
        ", got ", x.shape());
  const bool add = sum.defined();
  Tensor out = add ? sum : Tensor(x.shape().with(1, s['N']), x.dtype(), x.device());
  CAIRN_RUN("segment_broadcast", x,
            segment_broadcast<T>(stream, kind, group_size(groups), s['D'], view(groups), head_view<T>(x),
                                 head_view<T>(out), add));
  return out;
}

}  // namespace cairn
