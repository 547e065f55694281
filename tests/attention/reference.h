#pragma once
// Slow references in double: each returns the dense matrix of attention weights, straight from the paper,
// by loops over single elements, and shares no code with the library. A variant without one fails
// tests/attention/variants.cpp.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nn/attention/attention.h"

namespace cairn::reference {

using Matrix = std::vector<std::vector<double>>;

// One (batch element, head).
struct Problem {
  Matrix q, k;                    // [N][D], [S][D]
  int64_t queries = 0, keys = 0;  // valid ones
  double scale = 1;
  std::function<bool(int64_t, int64_t)> visible;  // (query, key), beyond the lengths
  // Of a clustered variant: which cluster each query is in, how many there are, and how many top keys.
  std::vector<int> labels;
  int64_t clusters = 0, top = 0;
};

// Weights [N][S]; the output is their product with V. Rows of queries that see nothing are zero.
using Reference = Matrix (*)(const Problem&);

Matrix full(const Problem& p);  // also for shared-full, with k = q
Matrix clustered(const Problem& p);
Matrix improved_clustered(const Problem& p);
Matrix oracle_top(const Problem& p);

// By the variant's name in the list.
const std::map<std::string, Reference>& references();

// The attention of one query over all keys, and that of its k largest keys (ties: lower index).
std::vector<double> row(const Problem& p, const std::vector<double>& query, int64_t index);
std::vector<int64_t> largest(const std::vector<double>& weights, int64_t k);

Matrix centroids(const Problem& p);

}  // namespace cairn::reference
