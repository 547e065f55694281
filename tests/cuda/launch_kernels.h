#pragma once
// Kernels for launch.cpp, behind functions that the C++ compiler can call.
#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn::test {

// to[i] = from[n - 1 - i], through `bytes` (at least 4 n) of dynamic shared memory.
void reverse_through_shared(const float* from, float* to, int n, size_t bytes);
// A launch of an empty grid, and one of blocks with more threads than a GPU takes.
void launch_nothing();
void launch_too_many_threads();
// The blocks in x, y and z that CUDA gets for such a launch.
std::array<unsigned, 3> blocks_of(int64_t x, int64_t y = 1, int64_t z = 1);
// sums[0] = the sum of 0 .. threads - 1, maxima[0] = the largest; by block_reduce, the same in every thread.
void reduce_block(int threads, int* sums, float* maxima);

}  // namespace cairn::test
