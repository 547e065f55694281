#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/attention/reference.h"

namespace cairn::reference {
namespace {

bool allowed(const Problem& p, int64_t i, int64_t j) { return i < p.queries && j < p.keys && p.visible(i, j); }

// The chunk of each position (-1: none), and the number of chunks.
std::vector<int64_t> chunks_of(const std::vector<int>& buckets, int64_t chunk, int64_t& count) {
  std::vector<size_t> order;
  for (size_t i = 0; i < buckets.size(); ++i)
    if (buckets[i] >= 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return buckets[a] < buckets[b]; });
  std::vector<int64_t> result(buckets.size(), -1);
  for (size_t place = 0; place < order.size(); ++place) result[order[place]] = int64_t(place) / chunk;
  count = (int64_t(order.size()) + chunk - 1) / chunk;
  return result;
}

}  // namespace

// Each round's attention by itself, then the rounds by the weight of their logsumexp, as in the paper.
static Matrix lsh(const Problem& p) {
  const size_t n = p.q.size(), rounds = p.chosen.at("buckets").size();
  const bool bucket_mask = p.flag("bucket_mask", true);
  const bool mean = p.options.count("combine") && p.options.at("combine") == "mean";
  // seen[r][i][j]
  std::vector<std::vector<std::vector<bool>>> seen(rounds, {n, std::vector<bool>(n, false)});
  for (size_t r = 0; r < rounds; ++r) {
    int64_t count = 0;
    const auto& bucket = p.chosen.at("buckets")[r];
    const auto chunk = chunks_of(bucket, p.option("chunk", 32), count);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) {
        if (i == j || chunk[i] < 0 || chunk[j] < 0 || !allowed(p, int64_t(i), int64_t(j))) continue;
        const bool near = chunk[j] == chunk[i] || (chunk[j] + 1) % count == chunk[i];
        seen[r][i][j] = near && (!bucket_mask || bucket[i] == bucket[j]);
      }
  }
  Matrix a(n, std::vector<double>(n, 0.0));
  for (size_t i = 0; i < n; ++i) {
    std::vector<std::vector<double>> of_round(rounds, std::vector<double>(n, 0.0));
    std::vector<double> sums(rounds, 0.0);
    for (size_t j = 0; j < n; ++j) {
      const double length = std::sqrt(std::inner_product(p.k[j].begin(), p.k[j].end(), p.k[j].begin(), 0.0));
      const double product = std::inner_product(p.q[i].begin(), p.q[i].end(), p.k[j].begin(), 0.0);
      const double score = length > 0 ? p.scale * product / length : 0;
      for (size_t r = 0; r < rounds; ++r)
        if (seen[r][i][j]) sums[r] += of_round[r][j] = std::exp(score);
    }
    const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
    for (size_t r = 0; r < rounds; ++r) {
      const double weight = mean ? 1 / double(rounds) : all > 0 ? sums[r] / all : 1 / double(rounds);
      for (size_t j = 0; j < n && sums[r] > 0; ++j) a[i][j] += weight * of_round[r][j] / sums[r];
      if (sums[r] == 0 && (mean || all == 0) && allowed(p, int64_t(i), int64_t(i))) a[i][i] += weight;
    }
  }
  return a;
}

// Not equivariant: positions of equal buckets are sorted by position.
static const AddReference added{
    "lsh",
    {.weights = lsh,
     .boolean_mask = true,
     .causal = true,
     .more = {"lsh-1:chunk=5,buckets=2", "lsh-3:chunk=3,bucket_mask=false", "lsh-2:chunk=2,combine=mean,scale=1",
              "lsh-3:chunk=4,bucket_mask=false,combine=mean"}}};

}  // namespace cairn::reference
