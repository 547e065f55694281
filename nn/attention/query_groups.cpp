#include "nn/attention/query_groups.h"

#include <algorithm>

namespace cairn {

GroupingOptions GroupingOptions::read(SpecReader& spec) {
  GroupingOptions options;
  options.clusters = spec.number("clusters");
  options.bits = int(spec.integer("bits", 63, 1, 64, "hash bits of a query"));
  options.iterations = int(spec.integer("iterations", 10, 0, 1000, "Lloyd iterations"));
  options.bias = spec.flag("bias", true, "hash with random thresholds");
  return options;
}

Groups group_queries(const Tensor& q, const AttentionMask& mask, const GroupingOptions& options,
                     const AttentionContext& context) {
  const AttentionChoices given = context.replay ? *context.replay : AttentionChoices{};
  AttentionChoices made = given;
  // More clusters than queries would stay empty and cost memory. Labels from outside may count as they like.
  const int64_t clusters =
      given.labels.defined() ? options.clusters : std::min(options.clusters, std::max<int64_t>(1, q.size(1)));
  if (!given.labels.defined()) {
    // 1. Hash: bit j of a query says on which side of hyperplane j it lies.
    if (!given.planes.defined())
      made.planes = random_planes(options.bits, q.size(3), options.bias, context.draw(Purpose::planes), q.device());
    made.codes = hash_codes(q, made.planes);
    // 2. K-means of the codes under the Hamming distance.
    made.labels = hamming_kmeans(made.codes, mask.query_lengths, clusters, int(made.planes.size(0)), options.iterations,
                                 context.draw(Purpose::clusters));
  }
  if (context.report) {
    context.report->planes = made.planes;
    context.report->codes = made.codes;
    context.report->labels = made.labels;
    context.report->clusters = options.clusters;
  }
  // 3. A stable sort by label.
  return group(made.labels, clusters);
}

}  // namespace cairn
