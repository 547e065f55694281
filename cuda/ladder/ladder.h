#pragma once
// Kernels as staircases: each step does the same as the one before it, faster, by one idea. See README.md.
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/kernels/softmax.h"

namespace cairn::ladder {

template <class Function>
struct Step {
  const char* name;
  Function* run;
  bool rounds = false;  // numbers to bfloat16 on the way
};

// y = softmax of the rows of x, which are finite, a multiple of 4 and at most max_cols of them in a row.
inline constexpr int max_cols = 1024;
using Softmax = void(Stream, Rows, const float* x, float* y);
std::vector<Step<Softmax>> softmax_steps();

// out [heads, N, 64] = softmax(q k^T / 8) v, for q, k, v of that shape, N a multiple of 64. Steps for tensor cores,
// which round the weights to bfloat16, are in the list where the device has them.
inline constexpr int head_size = 64;
struct Heads {
  int heads = 0, N = 0;
};
using Attention = void(Stream, Heads, const bfloat16* q, const bfloat16* k, const bfloat16* v, float* out);
std::vector<Step<Attention>> attention_steps();

}  // namespace cairn::ladder
