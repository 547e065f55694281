#pragma once
// The tensors that `attend` reads from a safetensors file: queries, keys, values and optional ones.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/attention/attention.h"
#include "nn/io/safetensors.h"

namespace cairn::attend {

struct Inputs {
  TensorFile file;         // may also have parameters of a variant, by their names
  Tensor q, k, v;          // [B, N, H, D], [B, S, H, D], [B, S, H, M], all float32 or all float64; k may be undefined
  AttentionMask mask;      // query_lengths, key_lengths, mask
  Tensor grad_out;         // [B, N, H, M] of q's element type, or undefined
  AttentionChoices given;  // planes, labels
  std::vector<std::string> notes;    // lines to show: the shapes, and how tensors are interpreted
  std::vector<std::string> unknown;  // other names in the file, with suggestions

  int64_t batches() const { return q.size(0); }
  int64_t queries() const { return q.size(1); }
  int64_t heads() const { return q.size(2); }
  int64_t keys() const { return v.size(1); }
  // The number of valid queries of a batch element.
  int64_t queries_of(int64_t batch) const {
    return mask.query_lengths.defined() ? mask.query_lengths.data<int32_t>()[batch] : queries();
  }
  // How many of these queries, which rise, are valid.
  int64_t valid_of(const std::vector<int64_t>& some, int64_t batch) const {
    return std::lower_bound(some.begin(), some.end(), queries_of(batch)) - some.begin();
  }
};

// A mask [B, 1, 1, S] that hides only the last keys becomes key_lengths, which every variant supports.
// Errors: DataError: q or v is missing, or a number is out of range; UsageError: element types or shapes disagree.
Inputs read_inputs(TensorFile given);

// An example: B = 1, N = S = `length`, H = 4, D = M = 32. As in a text, every 16 consecutive positions share one of
// eight topics, a direction of their queries and keys. So the attention weights have blocks.
TensorFile example_file(int64_t length, uint64_t seed);

}  // namespace cairn::attend
