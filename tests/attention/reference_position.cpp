#include "tests/attention/reference.h"

namespace cairn::reference {

// Groups of consecutive queries, as in a layer of even number: query i of n is in the last group that begins, at
// c n / C, no later than i.
static Problem grouped_by_position(const Problem& p) {
  Problem grouped = p;
  grouped.labels.assign(p.q.size(), -1);
  for (int64_t i = 0; i < p.queries; ++i) {
    int label = int(i);  // C >= n: each its own
    if (p.number < p.queries)
      while (label * p.queries > i * p.number) --label;
    grouped.labels[size_t(i)] = label;
  }
  return grouped;
}

Matrix position(const Problem& p) { return clustered(grouped_by_position(p)); }
Matrix improved_position(const Problem& p) { return improved_clustered(grouped_by_position(p)); }

}  // namespace cairn::reference
