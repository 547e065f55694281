#pragma once
// Where the clusters of k-means start, and where one without members starts again.
#include "core/philox.h"

namespace cairn {

// A query, of n valid ones, for cluster c of C <= n: in iteration 0 one of the c-th of C strata, positions
// floor(c n / C) up to floor((c + 1) n / C); later one of all. `row` is draw.row(batch_head).
CAIRN_HD inline int64_t draw_query(PhiloxKey key, uint32_t row, int64_t c, int64_t C, int64_t n, int iteration) {
  const int64_t low = iteration == 0 ? c * n / C : 0, high = iteration == 0 ? (c + 1) * n / C : n;
  const PhiloxWords words = philox(key, {{row, uint32_t(c), uint32_t(iteration), 0}});
  return low + below(words.w[0], uint32_t(high - low));
}

}  // namespace cairn
