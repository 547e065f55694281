#include "tests/attention/reference.h"

namespace cairn::reference {

// Clusters of consecutive queries, as in a layer of even number: query i of n is in the last cluster that begins, at
// c n / C, no later than i.
static Problem clustered_by_position(const Problem& p) {
  Problem result = p;
  std::vector<int> labels(p.q.size(), -1);
  for (int64_t i = 0; i < p.queries; ++i) {
    int label = int(i);  // C >= n: each its own
    if (p.number < p.queries)
      while (label * p.queries > i * p.number) --label;
    labels[size_t(i)] = label;
  }
  result.chosen["labels"] = {labels};
  return result;
}

static Matrix position(const Problem& p) { return clustered(clustered_by_position(p)); }
static Matrix improved_position(const Problem& p) { return improved_clustered(clustered_by_position(p)); }

static const AddReference added{"position", {.weights = position, .cross = true, .equivariant = true}};
static const AddReference added_improved{"i-position",
                                         {.weights = improved_position, .cross = true, .equivariant = true}};

}  // namespace cairn::reference
