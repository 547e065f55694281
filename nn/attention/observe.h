#pragma once
// What a variant attends to: its weights as a dense matrix, for pictures, comparisons and tests. Memory O(N S) a head.
#include <functional>
#include <vector>

#include "nn/attention/multi_head.h"

namespace cairn {

// The weights of any variant, float32 [B, H, N, S]. For given draws and choices its output is linear in the values, so
// values that are the identity matrix make it the matrix of weights. Rows sum to 1; those of queries beyond their
// length or without a key are zero. Errors: as the variant's.
Tensor attention_weights(const Attention& attention, const Tensor& q, const Tensor& k, const AttentionMask& mask,
                         const AttentionContext& context);

// What one layer's variant saw in one forward pass.
struct Observation {
  Tensor q, k, v;            // [B, N, H, D], [B, S, H, D], [B, S, H, M]
  Tensor weights, full;      // [B, H, N, S]: the variant's, and those of full attention with this q and k
  AttentionChoices choices;  // labels and top keys, where the variant has them
};

// Runs `forward` once with an observer around the variant of each of `layers`, and takes the observers out again, also
// when it throws. What `forward` computes is what it computes without them. One observation a layer.
std::vector<Observation> observe(const std::vector<MultiHeadAttention*>& layers, const std::function<void()>& forward);

}  // namespace cairn
