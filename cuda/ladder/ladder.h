#pragma once
// Kernels as staircases: each step does the same as the one before it, faster, by one idea. See README.md.
#include <cstdint>
#include <vector>

#include "core/device.h"
#include "core/kernels/softmax.h"

namespace cairn::ladder {

template <class Function>
struct Step {
  const char* name;
  Function* run;
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

}  // namespace cairn::ladder
