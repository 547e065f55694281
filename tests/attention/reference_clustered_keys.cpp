#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/attention/reference.h"

namespace cairn::reference {
namespace {

double product(const Problem& p, size_t query, const std::vector<double>& key) {
  double sum = 0;
  for (size_t d = 0; d < key.size(); ++d) sum += p.q[query][d] * key[d];
  return p.scale * sum;
}

// A cluster of keys, and its weight for a query.
struct Far {
  std::vector<size_t> members;
  std::vector<double> mean;
  double score = 0;
};

// Query i over the keys of near blocks, members of the clusters that it takes, and means of the others.
std::vector<double> row_of(const Problem& p, size_t i, int64_t block, int64_t top, const std::vector<Far>& clusters) {
  std::vector<double> a(p.k.size(), -INFINITY);  // scores
  const auto distance = [&](size_t j) { return std::abs(int64_t(i) / block - int64_t(j) / block); };
  const auto sees = [&](size_t j) { return int64_t(j) < p.keys && p.visible(int64_t(i), int64_t(j)); };
  for (size_t j = 0; j < a.size(); ++j)
    if (distance(j) <= 1 && sees(j)) a[j] = product(p, i, p.k[j]);
  std::vector<Far> far;
  for (const Far& cluster : clusters) {
    if (cluster.members.empty() || distance(cluster.members[0]) <= 1 || !sees(cluster.members[0])) continue;
    far.push_back(cluster);
    far.back().score = product(p, i, cluster.mean) + std::log(double(cluster.members.size()));
  }
  std::stable_sort(far.begin(), far.end(), [](const Far& x, const Far& y) { return x.score > y.score; });
  for (size_t c = 0; c < far.size(); ++c)
    for (size_t j : far[c].members)
      a[j] = int64_t(c) < top ? product(p, i, p.k[j]) : far[c].score - std::log(double(far[c].members.size()));
  const double shift = a.empty() ? 0 : *std::max_element(a.begin(), a.end());
  double sum = 0;
  for (double& x : a) sum += x = x == -INFINITY ? 0 : std::exp(x - shift);
  for (double& x : a) x = sum > 0 ? x / sum : 0;
  return a;
}

Matrix clustered_keys(const Problem& p) {
  const auto places = int64_t(std::bit_ceil(uint64_t(p.number)));
  const int64_t block = p.option("block", std::max<int64_t>(64, places));
  std::vector<Far> clusters;
  if (const auto chosen = p.chosen.find("key_labels"); chosen != p.chosen.end())
    for (size_t j = 0; j < p.k.size(); ++j) {
      const int label = chosen->second[0][j];
      if (label < 0) continue;
      if (size_t(label) >= clusters.size()) clusters.resize(size_t(label) + 1);
      clusters[size_t(label)].members.push_back(j);
    }
  for (Far& cluster : clusters)
    for (size_t d = 0; d < p.k[0].size(); ++d) {
      cluster.mean.push_back(0);
      for (size_t j : cluster.members) cluster.mean[d] += p.k[j][d] / double(cluster.members.size());
    }
  Matrix a(p.q.size(), std::vector<double>(p.k.size(), 0.0));
  for (size_t i = 0; int64_t(i) < p.queries; ++i) a[i] = row_of(p, i, block, p.option("top", 0), clusters);
  return a;
}

const AddReference added{
    "clustered-keys",
    {.weights = clustered_keys,
     .causal = true,
     .more = {"clustered-keys-2:block=4", "clustered-keys-3:block=8,iterations=0", "clustered-keys-3:block=4,top=1",
              "clustered-keys-2:block=4,top=3", "clustered-keys-2:block=8,top=1"}}};

}  // namespace
}  // namespace cairn::reference
