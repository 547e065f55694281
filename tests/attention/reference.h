#pragma once
// Slow references in double: each returns the dense matrix of attention weights, straight from the paper,
// by loops over single elements, and shares no code with the library. A variant without one fails
// tests/attention/variants.cpp.
#include <functional>
#include <map>
#include <string>
#include <utility>
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
  // The choices that the reference takes as given, by their names: int32 [B, H, N] is one row here, [B, H, R, N] R
  // rows. And the learned parameters: of [H, R, columns], this head's matrix.
  std::map<std::string, std::vector<std::vector<int>>> chosen;
  std::map<std::string, Matrix> learned;

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

// By the variant's name in the list.
std::map<std::string, Entry>& references();

// `static const AddReference added{"full", {full, true, true, true, true}};` adds one before the tests run.
struct AddReference {
  AddReference(const char* name, Entry entry) { references()[name] = std::move(entry); }
};

// What other references are made of: full attention, and clustered and improved clustered by the clusters chosen.
Matrix full(const Problem& p);
Matrix clustered(const Problem& p);
Matrix improved_clustered(const Problem& p);

// The attention of one query over all keys, and that of its k largest keys (ties: lower index).
std::vector<double> row(const Problem& p, const std::vector<double>& query, int64_t index);
std::vector<int64_t> largest(const std::vector<double>& weights, int64_t k);

}  // namespace cairn::reference
