#include <algorithm>

#include "tests/attention/reference.h"

namespace cairn::reference {

// Which cluster each query is in, -1: none.
static const std::vector<int>& labels(const Problem& p) { return p.chosen.at("labels").at(0); }

// [eq. 3]
static Matrix centroids(const Problem& p) {
  const auto& label = labels(p);
  const auto clusters = size_t(label.empty() ? 0 : *std::max_element(label.begin(), label.end()) + 1);
  Matrix sums(clusters, std::vector<double>(p.q.empty() ? 0 : p.q[0].size(), 0.0));
  std::vector<double> counts(clusters, 0.0);
  for (size_t i = 0; i < p.q.size(); ++i) {
    if (label[i] < 0) continue;
    counts[size_t(label[i])] += 1;
    for (size_t d = 0; d < p.q[i].size(); ++d) sums[size_t(label[i])][d] += p.q[i][d];
  }
  for (size_t j = 0; j < sums.size(); ++j)
    for (double& x : sums[j]) x = counts[j] > 0 ? x / counts[j] : 0;
  return sums;
}

// [eq. 4] [eq. 6] The row of a query is that of its centroid.
Matrix clustered(const Problem& p) {
  const Matrix c = centroids(p);
  Matrix a(p.q.size(), std::vector<double>(p.k.size(), 0.0));
  for (size_t i = 0; i < p.q.size(); ++i)
    if (labels(p)[i] >= 0) a[i] = row(p, c[size_t(labels(p)[i])], -1);
  return a;
}

// [eq. 9] [eq. 10] [eq. 16] [eq. 17]
Matrix improved_clustered(const Problem& p) {
  Matrix a = clustered(p);
  for (size_t i = 0; i < p.q.size(); ++i) {
    if (labels(p)[i] < 0) continue;
    const auto own = row(p, p.q[i], -1);
    const auto top = largest(a[i], p.option("topk", 32));
    double mass = 0, sum = 0;
    for (int64_t l : top) mass += a[i][size_t(l)], sum += own[size_t(l)];
    for (int64_t l : top) a[i][size_t(l)] = mass * own[size_t(l)] / sum;
  }
  return a;
}

static const AddReference added{
    "clustered", {.weights = clustered, .cross = true, .equivariant = true, .more = {"clustered-3:refine=2"}}};
static const AddReference added_improved{"i-clustered",
                                         {.weights = improved_clustered,
                                          .cross = true,
                                          .equivariant = true,
                                          .more = {"i-clustered-3:topk=1", "i-clustered-3:refine=1,topk=2"}}};
static const AddReference added_euclidean{"euclidean", {.weights = clustered, .cross = true, .equivariant = true}};
static const AddReference added_improved_euclidean{"i-euclidean",
                                                   {.weights = improved_clustered, .cross = true, .equivariant = true}};

}  // namespace cairn::reference
