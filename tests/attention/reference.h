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
  // As specified: the number behind the name, and the options that were given.
  int64_t number = 0;
  std::map<std::string, std::string> options;
  // What a variant chose by chance or in another way that its reference does not check: which cluster each query is in
  // (-1: none) and how many there are; which bucket, for each round; and what it learned.
  std::vector<int> labels;
  int64_t clusters = 0;
  std::vector<std::vector<int>> buckets;
  Matrix points;

  int64_t option(const std::string& name, int64_t preset) const {
    const auto found = options.find(name);
    return found == options.end() ? preset : std::stoll(found->second);
  }
  bool flag(const std::string& name, bool preset) const {
    const auto found = options.find(name);
    return found == options.end() ? preset : found->second == "true";
  }
};

// Weights [N][S]; the output is their product with V. Rows of queries that see nothing are zero.
using Reference = Matrix (*)(const Problem&);

Matrix full(const Problem& p);  // also for shared-full, with k = q
Matrix clustered(const Problem& p);
Matrix improved_clustered(const Problem& p);
Matrix oracle_top(const Problem& p);
Matrix linear(const Problem& p);
Matrix inducing(const Problem& p);
Matrix position(const Problem& p);
Matrix improved_position(const Problem& p);
Matrix lsh(const Problem& p);  // from the buckets
Matrix local(const Problem& p);
Matrix longformer(const Problem& p);
Matrix strided(const Problem& p);

// What the tests hold a variant to.
struct Entry {
  Reference weights;
  // What nn/attention/README.md promises; a variant must refuse what it does not honor.
  bool boolean_mask = false, causal = false, cross = false;
  // Does the output move with the queries, when they change places (and their labels with them)?
  bool equivariant = false;
  // Specifications to try besides the one with small numbers that spec_of() makes.
  std::vector<std::string> more = {};
};

// By the variant's name in the list. Tests of variants that are not in the library add theirs.
std::map<std::string, Entry>& references();

// The attention of one query over all keys, and that of its k largest keys (ties: lower index).
std::vector<double> row(const Problem& p, const std::vector<double>& query, int64_t index);
std::vector<int64_t> largest(const std::vector<double>& weights, int64_t k);

Matrix centroids(const Problem& p);

}  // namespace cairn::reference
