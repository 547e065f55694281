#pragma once
// The device side of CUDA for g++ and clang: qualifiers, built-in variables, barriers, warp collectives, atomics and
// bit intrinsics. Everything that makes a CUDA thread wait for others is in multiprocessor.cpp.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <type_traits>

#include "core/error.h"
#include "cuda/emulator/cuda_runtime_api.h"
#include "cuda/source_line.h"

// ---- qualifiers
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// A host thread runs one block at a time, so a variable of the host thread is a variable of the block. (This does not
// work for `extern __shared__`: use cairn::gpu::dynamic_shared.) The address sanitizer guards the ends of ordinary
// static variables only, so with it there is a single host thread. By the tag shared_memory.cpp finds these variables,
// to fill them with 0xFF when the first thread of a block reaches one.
#if CAIRN_HOST_CUDA_ASAN
#define CAIRN_ONE_PER_BLOCK static
#else
#define CAIRN_ONE_PER_BLOCK static thread_local
#endif
#define __shared__                                                                     \
  if (!cairn::host_cuda::static_shared_filled) cairn::host_cuda::fill_static_shared(); \
  __attribute__((abi_tag("cairn_shared"))) CAIRN_ONE_PER_BLOCK

// ---- built-in variables
inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim{}, gridDim{};
inline constexpr int warpSize = 32;

namespace cairn::host_cuda {

// Waits for all threads of the block that have not ended. Returns how many of them have a predicate other than 0.
int block_barrier(int predicate, SourceLine where);

// The lanes that have met in a collective, as one of them sees them.
struct Lanes {
  const void* const* values;  // what each lane of the warp passes; null: the lane does not take part
  int me;
};
using ReadLanes = std::function<void(const Lanes&)>;
// Waits for the lanes of the mask; each passes a value. When all have arrived, read() of each lane is called, before
// any of them goes on. The thread that came last calls all of them, so they take their lane from `me`, not threadIdx.
void warp_collective(const char* name, unsigned mask, const void* value, const ReadLanes& read, SourceLine where);
// Ends the kernel with a KernelError: lane `reader` reads one that does not take part.
[[noreturn]] void refuse_to_read(int lane, int reader);

// Ends the kernel with a KernelError that says `what` about the calling thread.
[[noreturn]] void refuse(const std::string& what, SourceLine where);

// Waits for all threads of the block cluster that have not ended.
void block_cluster_barrier(SourceLine where);
// The place in the dynamic shared memory of block `rank` of the block cluster that corresponds to `mine`.
void* in_block(int rank, const void* mine, SourceLine where);

// The block's dynamic shared memory, filled with 0xFF before the block starts.
void* dynamic_shared_memory();

// For the block that runs on this host thread; see __shared__.
inline constinit thread_local bool static_shared_filled = true;
void fill_static_shared();

// Each lane of the mask passes `mine`. Then read(all, me) is called for each, in any thread; all(lane) is what that
// lane passes.
template <class T, class F>
void warp_exchange(const char* name, unsigned mask, const T& mine, const F& read, SourceLine where) {
  const auto read_all = [&read](const Lanes& lanes) {
    const auto all = [&lanes](int lane) -> const T& {
      if (!lanes.values[lane]) refuse_to_read(lane, lanes.me);
      return *static_cast<const T*>(lanes.values[lane]);
    };
    read(all, lanes.me);
  };
  warp_collective(name, mask, &mine, read_all, where);
}

// A shuffle: lane `me` gets the value of lane source(me, first) of its group of `width` lanes, which begins at `first`;
// its own where that lies beyond the group. (xor may read earlier groups, as on a GPU.)
template <class T, class F>
T shuffle(const char* name, unsigned mask, T value, int width, F source, SourceLine where) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "CUDA takes 4 or 8 bytes here");
  if (width < 1 || width > 32 || !std::has_single_bit(unsigned(width)))
    refuse(concat(name, ": the width must be a power of two up to 32, got ", width), where);
  T result{};
  const auto read = [&](const auto& all, int me) {
    const int first = me / width * width, from = source(me, first);
    result = all(from < 0 || from >= first + width ? me : from);
  };
  warp_exchange(name, mask, value, read, where);
  return result;
}

}  // namespace cairn::host_cuda

// ---- block barriers. Callers do not pass the last parameter of these functions: it is the line of the call.
#define CAIRN_HERE cairn::SourceLine where = cairn::SourceLine::current()
inline void __syncthreads(CAIRN_HERE) { cairn::host_cuda::block_barrier(0, where); }
inline int __syncthreads_count(int predicate, CAIRN_HERE) { return cairn::host_cuda::block_barrier(predicate, where); }
inline int __syncthreads_and(int predicate, CAIRN_HERE) { return __syncthreads_count(!predicate, where) == 0; }
inline int __syncthreads_or(int predicate, CAIRN_HERE) { return __syncthreads_count(predicate, where) > 0; }

// ---- warp collectives
inline void __syncwarp(unsigned mask = 0xffffffffu, CAIRN_HERE) {
  cairn::host_cuda::warp_collective(
      "__syncwarp", mask, &mask, [](const auto&) {}, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CAIRN_HERE) {
  const auto source = [=](int, int first) { return first + (lane & (width - 1)); };
  return cairn::host_cuda::shuffle("__shfl_sync", mask, value, width, source, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CAIRN_HERE) {
  const auto source = [=](int me, int first) { return me - int(delta) < first ? me : me - int(delta); };
  return cairn::host_cuda::shuffle("__shfl_up_sync", mask, value, width, source, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CAIRN_HERE) {
  const auto source = [=](int me, int) { return me + int(delta); };
  return cairn::host_cuda::shuffle("__shfl_down_sync", mask, value, width, source, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, CAIRN_HERE) {
  const auto source = [=](int me, int) { return me ^ lane_mask; };
  return cairn::host_cuda::shuffle("__shfl_xor_sync", mask, value, width, source, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, CAIRN_HERE) {
  unsigned votes = 0;
  const auto count = [&votes](const cairn::host_cuda::Lanes& lanes) {
    for (int lane = 0; lane < 32; ++lane)
      if (const void* vote = lanes.values[lane]) votes |= unsigned(*static_cast<const int*>(vote) != 0) << lane;
  };
  cairn::host_cuda::warp_collective("a vote", mask, &predicate, count, where);
  return votes;
}
inline int __any_sync(unsigned mask, int predicate, CAIRN_HERE) { return __ballot_sync(mask, predicate, where) != 0; }
inline int __all_sync(unsigned mask, int predicate, CAIRN_HERE) { return __ballot_sync(mask, !predicate, where) == 0; }
#undef CAIRN_HERE

// ---- memory. It is coherent: the memory model of a GPU is not emulated.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_or(value, std::memory_order_relaxed);
}

// ---- arithmetic on bits
__forceinline__ int __popc(unsigned x) { return std::popcount(x); }
__forceinline__ int __popcll(unsigned long long x) { return std::popcount(x); }
__forceinline__ unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
__forceinline__ float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }

// ---- arithmetic, in the global namespace as in CUDA. Functions that a GPU approximates are exact here, up to about
// the last bit. (The C library declares some of them.)
using std::max;
using std::min;
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __expf(float x) noexcept { return std::exp(x); }
