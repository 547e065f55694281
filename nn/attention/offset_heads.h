#pragma once
// Starting weights with which each head looks at a neighbor of its position.
#include <vector>

#include "nn/attention/multi_head.h"

namespace cairn {

// Lets head h begin by attending to position i + offsets[h] from position i, where inputs contain
// sinusoidal_positions(). A small model with little data hardly learns to use its attention otherwise. (The paper does
// not do this.)
//
// With W the key weights of a head, R(delta) PE(p) = PE(p + delta), and a = 3.9 for frequencies of at least 0.1, else
// 0.4:  W_k = W diag(a),  W_q = W diag(a) R(offset). As W^T W is about a multiple of the identity, the mean of q_i .
// k_j over such W is largest at j = i + offset. Only these starting values change. Where the queries are the keys, the
// offset is 0: the neighbors on both sides then score alike. Errors (UsageError): not one offset for each head; another
// offset than 0 where the queries are the keys; an odd number of features.
void start_at_offsets(MultiHeadAttention& attention, const std::vector<int>& offsets);

}  // namespace cairn
