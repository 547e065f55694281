#pragma once
// What `attend` reads from a safetensors file: queries, keys and values, and whatever else is to be fixed.
#include "nn/attention/attention.h"
#include "nn/io/safetensors.h"

namespace cairn::attend {

struct Inputs {
  Tensor q, k, v;      // [B, N, H, D], [B, S, H, D], [B, S, H, M], all float32 or all float64; k may be undefined
  AttentionMask mask;  // query_lengths, key_lengths, mask
  Tensor grad_out;     // [B, N, H, M], or undefined
  std::map<std::string, Tensor> parameters;  // float32 or float64, by the names that variants give theirs
  AttentionChoices given;                    // planes, labels
  std::vector<std::string> unknown;          // other names in the file

  int64_t batches() const { return q.size(0); }
  int64_t queries() const { return q.size(1); }
  int64_t heads() const { return q.size(2); }
  int64_t keys() const { return v.size(1); }
};

// Errors: DataError: there is no q or v, an element type or a number makes no sense; UsageError: shapes that disagree.
Inputs read_inputs(const TensorFile& file);

// An example: B = 1, N = S = `length`, H = 4, D = M = 32. Like in a text, stretches of positions share one of eight
// topics (directions of their queries and keys), and sinusoids tell where a position is; so attention has blocks and a
// band.
TensorFile example_file(int64_t length, uint64_t seed);

}  // namespace cairn::attend
