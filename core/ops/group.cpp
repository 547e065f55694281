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
  CAIRN_DISPATCH("group", int32_t, labels,
                 group(current_stream(labels.device()), group_size(groups), labels.data<int32_t>(),
                       groups.permutation_.mutable_data<int32_t>(), groups.offsets_.mutable_data<int32_t>()));
  groups.version_ = groups.version();
  return groups;
}

}  // namespace cairn
