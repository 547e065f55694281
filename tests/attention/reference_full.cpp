#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/attention/reference.h"

namespace cairn::reference {

std::map<std::string, Entry>& references() {
  static std::map<std::string, Entry> all;
  return all;
}

// [eq. 1]
std::vector<double> row(const Problem& p, const std::vector<double>& query, int64_t index) {
  std::vector<double> weights(p.k.size(), 0.0);
  double maximum = -INFINITY, sum = 0;
  const auto seen = [&](size_t j) { return int64_t(j) < p.keys && (index < 0 || p.visible(index, int64_t(j))); };
  const auto score = [&](size_t j) {
    return p.scale * std::inner_product(query.begin(), query.end(), p.k[j].begin(), 0.0);
  };
  for (size_t j = 0; j < p.k.size(); ++j)
    if (seen(j)) maximum = std::max(maximum, score(j));
  for (size_t j = 0; j < p.k.size(); ++j)
    if (seen(j)) sum += weights[j] = std::exp(score(j) - maximum);
  for (double& weight : weights) weight = sum > 0 ? weight / sum : 0;
  return weights;
}

Matrix full(const Problem& p) {
  Matrix a(p.q.size(), std::vector<double>(p.k.size(), 0.0));
  for (int64_t i = 0; i < p.queries; ++i) a[size_t(i)] = row(p, p.q[size_t(i)], i);
  return a;
}

// A query's row, restricted to its k largest keys and normalized again.
static Matrix oracle_top(const Problem& p) {
  Matrix a = full(p);
  for (auto& weights : a) {
    const auto top = largest(weights, p.number);
    double sum = 0;
    for (int64_t l : top) sum += weights[size_t(l)];
    std::vector<double> kept(weights.size(), 0.0);
    for (int64_t l : top) kept[size_t(l)] = weights[size_t(l)] / sum;
    weights = kept;
  }
  return a;
}

std::vector<int64_t> largest(const std::vector<double>& weights, int64_t k) {
  std::vector<int64_t> order;
  for (size_t j = 0; j < weights.size(); ++j)
    if (weights[j] > 0) order.push_back(int64_t(j));
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return weights[size_t(a)] > weights[size_t(b)]; });
  if (int64_t(order.size()) > k) order.resize(size_t(k));
  return order;
}

static const AddReference added_full{
    "full", {.weights = full, .boolean_mask = true, .causal = true, .cross = true, .equivariant = true}};
static const AddReference added_shared_full{
    "shared-full", {.weights = full, .boolean_mask = true, .causal = true, .equivariant = true}};  // k = q
static const AddReference added_oracle_top{
    "oracle-top", {.weights = oracle_top, .boolean_mask = true, .causal = true, .cross = true, .equivariant = true}};

}  // namespace cairn::reference
