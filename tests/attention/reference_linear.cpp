#include <cmath>

#include "tests/attention/reference.h"

namespace cairn::reference {

// The weight of a key is the product of the features elu(x) + 1 of the query and the key, divided by the sum of these
// products over all keys that the query sees.
static Matrix linear(const Problem& p) {
  const auto feature = [](double x) { return (x > 0 ? x : std::expm1(x)) + 1; };
  Matrix a(p.q.size(), std::vector<double>(p.k.size(), 0.0));
  for (size_t i = 0; i < size_t(p.queries); ++i) {
    double sum = 0;
    for (size_t j = 0; j < size_t(p.keys); ++j) {
      if (!p.visible(int64_t(i), int64_t(j))) continue;
      for (size_t d = 0; d < p.q[i].size(); ++d) a[i][j] += feature(p.q[i][d]) * feature(p.k[j][d]);
      sum += a[i][j];
    }
    for (double& weight : a[i]) weight = sum > 0 ? weight / sum : 0;
  }
  return a;
}

static const AddReference added{"linear", {.weights = linear, .causal = true, .cross = true, .equivariant = true}};

}  // namespace cairn::reference
