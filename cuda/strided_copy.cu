// Copies elements from one tensor to another, each with its own strides: to permute, cut, join and broadcast.
//
// Launch. A thread takes single elements, a grid's stride apart, and finds each in both tensors from its coordinates
// (strides.cuh). Blocks of 256 threads.
// Traffic of n elements of e bytes: 2 e n, the floor, where both tensors have stride 1 along the innermost axis. A
// tensor with a larger stride has up to 32 / e times its traffic, unless the cache keeps its sectors until neighbors
// are read. Bound by memory where elements are large or axes are few: each axis takes about 25 instructions.
#include "core/kernels/strided_copy.h"

#include <algorithm>

#include "cuda/common.cuh"
#include "cuda/strides.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int64_t max_blocks = 16384;

template <class T>
__global__ void __launch_bounds__(threads) copy_elements(StridedLoop loop, const T* x, T* y) {
  const int64_t step = int64_t(gridDim.x) * threads;
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < loop.n; i += step) {
    int64_t at[2];
    loop.find(i, at);
    y[at[1]] = x[at[0]];
  }
}

}  // namespace

template <class T>
void strided_copy(Stream stream, const Strides& strides, const T* x, T* y) {
  const int64_t n = elements(strides);
  if (n == 0) return;
  launch(copy_elements<T>, {std::min(max_blocks, ceil_div(n, threads)), threads, 0, stream}, StridedLoop{strides}, x,
         y);
}

template void strided_copy(Stream, const Strides&, const uint8_t*, uint8_t*);
template void strided_copy(Stream, const Strides&, const uint16_t*, uint16_t*);
template void strided_copy(Stream, const Strides&, const uint32_t*, uint32_t*);
template void strided_copy(Stream, const Strides&, const uint64_t*, uint64_t*);

}  // namespace cairn::gpu
