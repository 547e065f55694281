#include "tests/attention/reference.h"

namespace cairn::reference {

// The queries' weights over the points, times the points' weights over the keys. A point sees all valid keys.
static Matrix inducing(const Problem& p) {
  Matrix over_keys;
  Problem inner = p;
  inner.k.clear();
  for (const auto& point : p.learned.at("points")) {
    over_keys.push_back(row(p, point, -1));
    inner.k.emplace_back(point.size(), 0.0);
    for (size_t j = 0; j < p.k.size(); ++j)
      for (size_t d = 0; d < point.size(); ++d) inner.k.back()[d] += over_keys.back()[j] * p.k[j][d];
  }
  inner.keys = int64_t(inner.k.size());
  Matrix a(p.q.size(), std::vector<double>(p.k.size(), 0.0));
  for (size_t i = 0; i < size_t(p.queries); ++i) {
    const auto over_points = row(inner, p.q[i], -1);
    for (size_t point = 0; point < over_points.size(); ++point)
      for (size_t j = 0; j < p.k.size(); ++j) a[i][j] += over_points[point] * over_keys[point][j];
  }
  return a;
}

static const AddReference added{
    "inducing",
    {.weights = inducing, .cross = true, .equivariant = true, .more = {"inducing-1", "inducing-40:scale=0.6"}}};

}  // namespace cairn::reference
