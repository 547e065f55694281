#pragma once
// Slow references in double: each returns the dense matrix of attention weights, straight from the paper, by loops over
// single elements. They share no code with the library. A variant without a reference fails
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
  int64_t queries = 0, keys = 0;  // the lengths
  double scale = 1;
  std::function<bool(int64_t, int64_t)> visible;  // (query, key): allowed by the mask, whatever the lengths
  // From the specification: the number after the name, and the options that it gives.
  int64_t number = 0;
  std::map<std::string, std::string> options;
  // The variant's choices by name: of int32 [B, H, N] one row, of [B, H, R, N] R rows. And its learned parameters: of
  // [H, R, columns] this head's matrix.
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

// A variant's reference, and what else the tests expect of the variant.
struct Entry {
  Reference weights;
  // What the variant can do (the masks of nn/attention/README.md). What is false, it must reject.
  bool boolean_mask = false, causal = false, cross = false;
  // If queries and their labels change places, do the outputs change places with them?
  bool equivariant = false;
  // Specifications to try besides the one with small numbers that spec_of() makes.
  std::vector<std::string> more = {};
  std::vector<std::string> more_cross = {};  // these can do cross attention, whatever the others can
};

// By the variant's name in the list.
std::map<std::string, Entry>& references();

// `static const AddReference added{"local", {.weights = local, .causal = true}};` adds one before the tests run.
struct AddReference {
  AddReference(const char* name, Entry entry) { references()[name] = std::move(entry); }
};

// Shared by several references. The clustered ones take the clusters from Problem::chosen.
Matrix full(const Problem& p);
Matrix clustered(const Problem& p);
Matrix improved_clustered(const Problem& p);

// The attention of one query over all keys, and that of its k largest keys (ties: lower index).
std::vector<double> row(const Problem& p, const std::vector<double>& query, int64_t index);
std::vector<int64_t> largest(const std::vector<double>& weights, int64_t k);

}  // namespace cairn::reference
