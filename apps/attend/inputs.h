#pragma once
// What `attend` reads from a safetensors file: queries, keys and values, and whatever else is to be fixed. And the
// variants of a comparison, when none are named.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/attention/attention.h"
#include "nn/io/safetensors.h"

namespace cairn::attend {

struct Inputs {
  std::string where;   // the file, for messages
  Tensor q, k, v;      // [B, N, H, D], [B, S, H, D], [B, S, H, M], all float32 or all float64; k may be undefined
  AttentionMask mask;  // query_lengths, key_lengths, mask
  Tensor grad_out;     // [B, N, H, M] of q's element type, or undefined
  std::map<std::string, Tensor> parameters;  // by the names that variants give theirs
  AttentionChoices given;                    // planes, labels
  std::vector<std::string> notes;            // for the reader: the shapes, and how they are taken
  std::vector<std::string> unknown;          // other names in the file, and what they may have meant

  int64_t batches() const { return q.size(0); }
  int64_t queries() const { return q.size(1); }
  int64_t heads() const { return q.size(2); }
  int64_t keys() const { return v.size(1); }
  // The queries of a batch element that take part.
  int64_t queries_of(int64_t batch) const {
    return mask.query_lengths.defined() ? mask.query_lengths.data<int32_t>()[batch] : queries();
  }
};

// A specification of each variant, with a number as one might choose it for a few hundred queries.
std::vector<std::string> every_variant();

// A mask [B, 1, 1, S] that hides only a tail of keys becomes key_lengths, which every variant can honor.
// Errors: DataError: there is no q or v, a number makes no sense; UsageError: element types or shapes that disagree.
Inputs read_inputs(const TensorFile& file);

// An example: B = 1, N = S = `length`, H = 4, D = M = 32. Like in a text, stretches of positions share one of eight
// topics, the directions of their queries and keys; so attention has blocks.
TensorFile example_file(int64_t length, uint64_t seed);

}  // namespace cairn::attend
