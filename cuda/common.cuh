#pragma once
// What many kernels need: reductions over a warp and over a block, rows shared out to warps, and elements moved several
// at a time.
#include <cmath>
#include <cstdint>

#include "core/host_device.h"
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

// The same of whole numbers: one instruction, where the GPU has it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline __device__ int warp_sum(int value) { return warp_reduce(value, Sum{}); }
inline __device__ uint32_t warp_min(uint32_t value) {
  return warp_reduce(value, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
}
inline __device__ uint32_t warp_max(uint32_t value) { return ~warp_min(~value); }
#else
inline __device__ int warp_sum(int value) { return __reduce_add_sync(full_warp, value); }
inline __device__ uint32_t warp_min(uint32_t value) { return __reduce_min_sync(full_warp, value); }
inline __device__ uint32_t warp_max(uint32_t value) { return __reduce_max_sync(full_warp, value); }
#endif

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

// ---- rows. Kernels for short rows give each of a block's warps one row at a time.
inline constexpr int rows_per_block = 4;     // of the kernels for short rows
inline constexpr int threads_per_row = 256;  // of those for long ones

// The rows of a warp, in the kernels for short rows.
inline __device__ int64_t first_row() { return int64_t(blockIdx.x) * rows_per_block + threadIdx.x / 32; }
inline __device__ int64_t row_step() { return int64_t(gridDim.x) * rows_per_block; }

// Calls f(i, c) for the elements c of a row that this lane keeps as its i-th.
template <int items, class F>
__device__ void each_kept(int64_t cols, F f) {
#pragma unroll
  for (int i = 0; i < items; ++i) {
    const int64_t c = int64_t(i) * 32 + threadIdx.x % 32;
    if (c < cols) f(i, c);
  }
}

// n blocks, or as many as a grid can have: for kernels that go on with further rows.
constexpr int64_t blocks(int64_t n) { return n < 0x7fffffff ? n : 0x7fffffff; }

// ---- n elements that move as one word of up to 16 bytes.
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T element[n];
};
// Whether packs can be read and written there. A slice of a tensor may start anywhere.
template <int n, class... T>
CAIRN_HD bool holds_packs(const T*... addresses) {
  return ((reinterpret_cast<uintptr_t>(addresses) % (sizeof(T) * n) == 0) && ...);
}
template <int n, class T>
__device__ const Pack<T, n>& pack(const T* x, int64_t i) {
  return reinterpret_cast<const Pack<T, n>*>(x)[i];
}
template <int n, class T>
__device__ Pack<T, n>& pack(T* x, int64_t i) {
  return reinterpret_cast<Pack<T, n>*>(x)[i];
}

}  // namespace cairn::gpu
