#pragma once
// What a variant attends to: its weights as a dense matrix, for pictures, comparisons and tests. Memory per head: O(N
// S).
#include <functional>
#include <vector>

#include "nn/attention/multi_head.h"

namespace cairn {

// The weights of any variant, float32 [B, H, N, S]: its output for values that are the identity matrix, because for
// given draws and choices the output is linear in the values. Rows sum to 1. Rows of queries beyond their length or
// without a key are zero. Errors: the variant's.
Tensor attention_weights(const Attention& attention, const Tensor& q, const Tensor& k, const AttentionMask& mask,
                         const AttentionContext& context);

// Runs `forward` once and observes each layer, with its weights if they are wanted. This changes no result.
std::vector<Observation> observe(const std::vector<MultiHeadAttention*>& layers, const std::function<void()>& forward,
                                 bool with_weights = true);

}  // namespace cairn
