#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

void Groups::check(const char* operation, const Shape& shape, Device device) const {
  cairn::check(labels_.defined(), operation, ": labels was never given a value");
  cairn::check(labels_.device() == device, operation, ": labels is on ", name(labels_.device()), ", expected ",
               name(device));
  cairn::check(labels_.shape() == shape, operation, ": expected labels of shape ", shape, ", got ", labels_.shape());
  cairn::check(version() == version_, operation, ": the groups were changed after they were made");
}

Groups group(const Tensor& labels, int64_t clusters) {
  const Sizes s = expect("group", {of_type(DType::int32, "labels", labels, "B H N")});
  check_clusters("group", clusters, 0, s['N']);
  Groups groups;
  groups.labels_ = labels;
  groups.permutation_ = Tensor(labels.shape(), DType::int32, labels.device());
  groups.offsets_ = Tensor(labels.shape().with(-1, clusters + 1), DType::int32, labels.device());
  groups.clusters_ = clusters;
  CAIRN_CALL("group", labels,
             group(stream, group_size(groups), labels.data<int32_t>(), groups.permutation_.mutable_data<int32_t>(),
                   groups.offsets_.mutable_data<int32_t>()));
  groups.version_ = groups.version();
  return groups;
}

Tensor position_labels(const Shape& shape, const Tensor& lengths, int64_t clusters, bool shift, Device device) {
  check(shape.rank() == 3, "position_labels: expected a shape [B, H, N], got ", shape);
  check_clusters("position_labels", clusters, 1, shape[2]);
  Tensor labels(shape, DType::int32, device);
  expect("position_labels",
         {of_type(DType::int32, "labels", labels, "B H N"), optional(of_type(DType::int32, "lengths", lengths, "B"))});
  check_values("position_labels", "lengths", lengths, 0, shape[2]);
  CAIRN_CALL("position_labels", labels,
             position_labels(stream, unless_empty(GroupSize{shape[0], shape[1], shape[2], clusters}, labels.elements()),
                             data_or_null<int32_t>(lengths), shift, labels.mutable_data<int32_t>()));
  return labels;
}

Tensor within(const Tensor& lengths, int64_t n) {
  const Sizes s = expect("within", {of_type(DType::int32, "lengths", lengths, "B")});
  check_values("within", "lengths", lengths, 0, n);
  return compare(Compare::less, arange(n, lengths.device()), lengths.reshape({s['B'], 1}));
}

}  // namespace cairn
