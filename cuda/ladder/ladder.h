#pragma once
// Kernels as staircases: each step does the same as the one before it, faster, by one idea. See README.md.
#include <cstdint>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/kernels/group.h"
#include "core/kernels/softmax.h"

namespace cairn::ladder {

template <class Function>
struct Step {
  const char* name;
  Function* run;
  bool rounds = false;  // numbers to bfloat16 on the way
};

// y = softmax of the rows of x, none of which is all minus infinity.
using Softmax = void(Stream, Rows, const float* x, float* y);
std::vector<Step<Softmax>> softmax_steps();

// c [m, n] = a [m, k] b [k, n].
struct Product {
  int m = 0, n = 0, k = 0;
};
using Matmul = void(Stream, Product, const float* a, const float* b, float* c);
std::vector<Step<Matmul>> matmul_steps();

// labels[i] = the nearest of C < 2^25 centroids to codes[i] under the Hamming distance, ties to the lowest, for N
// codes.
struct Assignment {
  int N = 0, C = 0;
};
using Hamming = void(Stream, Assignment, const uint64_t* codes, const uint64_t* centroids, int32_t* labels);
std::vector<Step<Hamming>> hamming_steps();

// out [heads, N, 64] = softmax(q k^T / 8) v, for q, k, v of that shape. Steps for tensor cores, which round the weights
// to bfloat16, are in the list where the device has them.
inline constexpr int head_size = 64;
struct Heads {
  int heads = 0, N = 0;
};
using Attention = void(Stream, Heads, const bfloat16* q, const bfloat16* k, const bfloat16* v, float* out);
std::vector<Step<Attention>> attention_steps();

// Its gradient. logsumexp [heads, N] of the scores; delta [heads, N] = dout . out.
using AttentionGradient = void(Stream, Heads, const bfloat16* q, const bfloat16* k, const bfloat16* v,
                               const bfloat16* dout, const float* logsumexp, const float* delta, float* dq, float* dk,
                               float* dv);
std::vector<Step<AttentionGradient>> attention_gradient_steps();

// The same over 32 keys alone, those of the query's cluster: topk [heads, C, 32], of which missing ones are -1 and
// stand last; one is there. Each query has a cluster.
inline constexpr int top_keys = 32;
struct Clusters : Heads {
  int C = 0;
};
using TopAttention = void(Stream, Clusters, const bfloat16* q, const bfloat16* k, const bfloat16* v, GroupView,
                          const int32_t* topk, float* out);
std::vector<Step<TopAttention>> top_attention_steps();

}  // namespace cairn::ladder
