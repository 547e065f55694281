#pragma once
// What `attend` reads from a safetensors file: queries, keys and values, and whatever else is to be fixed.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/attention/attention.h"
#include "nn/io/safetensors.h"

namespace cairn::attend {

struct Inputs {
  TensorFile file;         // where parameters of a variant are found by their names
  Tensor q, k, v;          // [B, N, H, D], [B, S, H, D], [B, S, H, M], all float32 or all float64; k may be undefined
  AttentionMask mask;      // query_lengths, key_lengths, mask
  Tensor grad_out;         // [B, N, H, M] of q's element type, or undefined
  AttentionChoices given;  // planes, labels
  std::vector<std::string> notes;    // for the reader: the shapes, and how they are taken
  std::vector<std::string> unknown;  // other names in the file, and what they may have meant

  int64_t batches() const { return q.size(0); }
  int64_t queries() const { return q.size(1); }
  int64_t heads() const { return q.size(2); }
  int64_t keys() const { return v.size(1); }
  // The queries of a batch element that take part.
  int64_t queries_of(int64_t batch) const {
    return mask.query_lengths.defined() ? mask.query_lengths.data<int32_t>()[batch] : queries();
  }
  // How many of some queries, which rise, take part.
  int64_t valid_of(const std::vector<int64_t>& some, int64_t batch) const {
    return std::lower_bound(some.begin(), some.end(), queries_of(batch)) - some.begin();
  }
};

// A mask [B, 1, 1, S] that hides only a tail of keys becomes key_lengths, which every variant can honor.
// Errors: DataError: there is no q or v, a number makes no sense; UsageError: element types or shapes that disagree.
Inputs read_inputs(const TensorFile& file);

// An example: B = 1, N = S = `length`, H = 4, D = M = 32. Like in a text, 16 positions in turn share one of eight
// topics, the directions of their queries and keys; so attention has blocks.
TensorFile example_file(int64_t length, uint64_t seed);

}  // namespace cairn::attend
