#pragma once
// Kernels made fast step by step: each step computes the same as the one before it, faster, by one idea. See README.md.
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/kernels/softmax.h"

namespace cairn::ladder {

template <class Function>
struct Step {
  const char* name;
  Function* run;
  bool rounds = false;  // whether it rounds weights to bfloat16
};

// y = softmax of the rows of x. Elements are finite; a row has at most max_cols, a multiple of 4.
inline constexpr int max_cols = 1024;
using Softmax = void(Stream, Rows, const float* x, float* y);
std::vector<Step<Softmax>> softmax_steps();

// out [heads, N, 64] = softmax(q k^T / 8) v, for q, k, v of the same shape, N a multiple of 64. If the device has
// tensor cores, the list includes steps for them, which round the weights to bfloat16.
inline constexpr int head_size = 64;
struct Heads {
  int heads = 0, N = 0;
};
using Attention = void(Stream, Heads, const bfloat16* q, const bfloat16* k, const bfloat16* v, float* out);
std::vector<Step<Attention>> attention_steps();

}  // namespace cairn::ladder
