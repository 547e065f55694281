#pragma once
// What many kernels need: reductions over a warp and over a block.
#include "cuda/launch.h"

namespace cairn::gpu {

inline constexpr unsigned full_warp = 0xffffffffu;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// A NaN loses against a number, as in fmaxf.
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// op over the 32 values of a warp, in every lane. All lanes take part. The order is fixed: a butterfly.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
  for (int distance = 16; distance > 0; distance /= 2) value = op(value, __shfl_xor_sync(full_warp, value, distance));
  return value;
}

// op over the values of a block of whole warps, in every thread. `none` is op's neutral element.
template <class T, class Op>
__device__ T block_reduce(T value, T none, Op op) {
  __shared__ T of_warp[32];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), warps = int(blockDim.x / 32);
  value = warp_reduce(value, op);
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < warps ? of_warp[lane] : none, op);
  __syncthreads();  // of_warp may be written again
  return value;
}

}  // namespace cairn::gpu
