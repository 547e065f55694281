#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/attention/reference.h"

namespace cairn::reference {
namespace {

bool allowed(const Problem& p, int64_t i, int64_t j) { return i < p.queries && j < p.keys && p.visible(i, j); }

// The positions that have a bucket, sorted by it, and the chunk of each position (-1: none).
struct Chunks {
  std::vector<size_t> order;
  std::vector<int64_t> of;
  int64_t count = 0;

  Chunks(const std::vector<int>& buckets, int64_t chunk) : of(buckets.size(), -1) {
    for (size_t i = 0; i < buckets.size(); ++i)
      if (buckets[i] >= 0) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return buckets[a] < buckets[b]; });
    for (size_t place = 0; place < order.size(); ++place) of[order[place]] = int64_t(place) / chunk;
    count = (int64_t(order.size()) + chunk - 1) / chunk;
  }
};

}  // namespace

// Each round's attention by itself, then the rounds by the weight of their logsumexp, as in the paper.
static Matrix lsh(const Problem& p) {
  const size_t n = p.q.size(), keys = p.k.size(), rounds = p.chosen.at("buckets").size();
  const int64_t size = p.option("chunk", 32);
  const bool own = p.chosen.count("key_buckets") > 0;
  const bool bucket_mask = p.flag("bucket_mask", true);
  const bool mean = p.options.count("combine") && p.options.at("combine") == "mean";
  // seen[r][i][j]
  std::vector<std::vector<std::vector<bool>>> seen(rounds, {n, std::vector<bool>(keys, false)});
  for (size_t r = 0; r < rounds; ++r) {
    const auto &bucket = p.chosen.at("buckets")[r], &of_keys = own ? p.chosen.at("key_buckets")[r] : bucket;
    const Chunks chunks(bucket, size), key_chunks(of_keys, size);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < keys; ++j) {
        const int64_t mine = chunks.of[i], other = key_chunks.of[j];
        if (mine < 0 || other < 0 || !allowed(p, int64_t(i), int64_t(j))) continue;
        bool near = i != j && (other == mine || (other + 1) % chunks.count == mine);
        if (own) {  // from the chunk of the first key that is not before the first query's bucket; else the last one
          const int first = bucket[chunks.order[size_t(mine * size)]];
          int64_t start = key_chunks.count - 1;
          for (size_t key : key_chunks.order)
            if (of_keys[key] >= first) start = std::min(start, key_chunks.of[key]);
          near = other == start || other == start + 1;
        }
        seen[r][i][j] = near && (!bucket_mask || bucket[i] == of_keys[j]);
      }
  }
  Matrix a(n, std::vector<double>(keys, 0.0));
  for (size_t i = 0; i < n; ++i) {
    std::vector<std::vector<double>> of_round(rounds, std::vector<double>(keys, 0.0));
    std::vector<double> sums(rounds, 0.0);
    for (size_t j = 0; j < keys; ++j) {
      const double length = own ? 1 : std::sqrt(std::inner_product(p.k[j].begin(), p.k[j].end(), p.k[j].begin(), 0.0));
      const double product = std::inner_product(p.q[i].begin(), p.q[i].end(), p.k[j].begin(), 0.0);
      const double score = length > 0 ? p.scale * product / length : 0;
      for (size_t r = 0; r < rounds; ++r)
        if (seen[r][i][j]) sums[r] += of_round[r][j] = std::exp(score);
    }
    const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
    for (size_t r = 0; r < rounds; ++r) {
      const double weight = mean ? 1 / double(rounds) : all > 0 ? sums[r] / all : 1 / double(rounds);
      for (size_t j = 0; j < keys && sums[r] > 0; ++j) a[i][j] += weight * of_round[r][j] / sums[r];
      if (!own && sums[r] == 0 && (mean || all == 0) && allowed(p, int64_t(i), int64_t(i))) a[i][i] += weight;
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
              "lsh-3:chunk=4,bucket_mask=false,combine=mean"},
     .more_cross = {"lsh-4:chunk=4,keys=own", "lsh-2:chunk=3,keys=own,combine=mean",
                    "lsh-1:chunk=2,keys=own,bucket_mask=false"}}};

}  // namespace cairn::reference
