#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

void Clusters::check(const char* operation, const Shape& shape, Device device) const {
  cairn::check(labels_.defined(), operation, ": labels was never given a value");
  cairn::check(labels_.device() == device, operation, ": labels is on ", name(labels_.device()), ", expected ",
               name(device));
  cairn::check(labels_.shape() == shape, operation, ": expected labels of shape ", shape, ", got ", labels_.shape());
  cairn::check(version() == version_, operation, ": the clusters were changed after they were made");
}

Clusters clusters_of(const Tensor& labels, int64_t count) {
  const Sizes s = expect("clusters_of", {of_type(DType::int32, "labels", labels, "B H N")});
  check_clusters("clusters_of", count, 0, s['N']);
  Clusters clusters;
  clusters.labels_ = labels;
  clusters.permutation_ = Tensor(labels.shape(), DType::int32, labels.device());
  clusters.offsets_ = Tensor(labels.shape().with(-1, count + 1), DType::int32, labels.device());
  clusters.count_ = count;
  CAIRN_CALL("clusters_of", labels,
             sort_by_label(stream, sizes(clusters), labels.data<int32_t>(),
                           clusters.permutation_.mutable_data<int32_t>(), clusters.offsets_.mutable_data<int32_t>()));
  clusters.version_ = clusters.version();
  return clusters;
}

Tensor list_members(const Clusters& clusters, int64_t width) {
  const Tensor& labels = clusters.labels();
  const Sizes s = expect("list_members", {of_type(DType::int32, "labels", labels, "B H N")});
  clusters.check("list_members", labels.shape(), labels.device());
  check<UsageError>(width >= 1, "list_members: width = ", width, ", expected at least 1");
  Tensor members({s['B'], s['H'], clusters.count(), width}, DType::int32, labels.device());
  CAIRN_CALL("list_members", labels,
             list_members(stream, sizes(clusters), width, view(clusters), members.mutable_data<int32_t>()));
  return members;
}

Tensor position_labels(const Shape& shape, const Tensor& lengths, int64_t clusters, bool shift, Device device) {
  check(shape.rank() == 3, "position_labels: expected a shape [B, H, N], got ", shape);
  check_clusters("position_labels", clusters, 1, shape[2]);
  Tensor labels(shape, DType::int32, device);
  expect("position_labels",
         {of_type(DType::int32, "labels", labels, "B H N"), optional(of_type(DType::int32, "lengths", lengths, "B"))});
  check_values("position_labels", "lengths", lengths, 0, shape[2]);
  CAIRN_CALL(
      "position_labels", labels,
      position_labels(stream, unless_empty(ClusterSizes{shape[0], shape[1], shape[2], clusters}, labels.elements()),
                      data_or_null<int32_t>(lengths), shift, labels.mutable_data<int32_t>()));
  return labels;
}

Tensor within(const Tensor& lengths, int64_t n) {
  const Sizes s = expect("within", {of_type(DType::int32, "lengths", lengths, "B")});
  check_values("within", "lengths", lengths, 0, n);
  return compare(Compare::less, arange(n, lengths.device()), lengths.reshape({s['B'], 1}));
}

}  // namespace cairn
