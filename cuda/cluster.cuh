#pragma once
// Clusters of blocks: blocks of a launch that run at the same time, meet at barriers of their own, and read and write
// each other's shared memory. For GPUs of compute capability 9.0 and newer; `Launch::cluster` is the number of blocks.
//
// Other blocks may use a block's shared memory only between its first and its last cluster_sync.
#include "cuda/launch.h"

#ifndef __CUDACC__
#include "cuda/emulator/ptx.h"
#endif

namespace cairn::gpu {

// Can the device run these, and is there code for it that has them?
inline bool has_clusters() { return has_code_for(90); }

// The instruction, or a trap where the compiler has no such instruction: has_clusters() is false there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CAIRN_PTX(...) __trap()
#else
#define CAIRN_PTX(...) asm volatile(__VA_ARGS__)
#endif

// The number of the block in its cluster.
inline __device__ unsigned cluster_rank() {
#ifdef __CUDACC__
  uint32_t rank = 0;
  CAIRN_PTX("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return host_cuda::cluster_rank();
#endif
}

// A barrier of all threads of the cluster that have not ended. What they wrote before it, all of them see after it.
#ifdef __CUDACC__
inline __device__ void cluster_sync() {
  CAIRN_PTX("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
#else
inline void cluster_sync(SourceLine where = SourceLine::current()) {
  host_cuda::barrier(host_cuda::Barrier::cluster, 0, where);
}
#endif

// Where block `rank` of the cluster has what this block has at `mine`, in dynamic shared memory. An ordinary pointer,
// for atomics too.
#ifdef __CUDACC__
template <class T>
__device__ T* neighbor_shared(T* mine, unsigned rank) {
  uint64_t address = 0;
  CAIRN_PTX("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(mine), "r"(rank));
  return reinterpret_cast<T*>(address);
}
#else
template <class T>
T* neighbor_shared(T* mine, unsigned rank, SourceLine where = SourceLine::current()) {
  return static_cast<T*>(host_cuda::neighbor_shared_memory(mine, rank, where));
}
#endif

#undef CAIRN_PTX

}  // namespace cairn::gpu
