#pragma once
// Block clusters: blocks of one launch that run at the same time on neighboring multiprocessors. They wait for one
// another and reach each other's shared memory. GPUs of compute capability 9.0 and newer have them (PTX ISA,
// "barrier.cluster", "mapa"). A launch asks for them by Launch::block_cluster. Blocks n b .. n b + n - 1 form a block
// cluster of n blocks. With n = 1, which every GPU has, these functions are those of a block.
//
// A kernel in block clusters uses dynamic shared memory only, because the emulator keeps other shared variables once
// for each host thread.
#include "cuda/common.cuh"

namespace cairn::gpu {

// Whether the device has block clusters, and the build has code for it that uses them.
inline bool has_block_clusters() { return runs_code_for(900) && device_attribute(cudaDevAttrClusterLaunch) != 0; }

// Waits for all threads of the block cluster. What they wrote before, also to another block's shared memory, is visible
// after it.
template <int blocks>
__device__ void block_cluster_barrier(SourceLine where = SourceLine::current()) {
  if constexpr (blocks == 1) {
    __syncthreads();
    return;
  }
#ifndef __CUDACC__
  host_cuda::block_cluster_barrier(where);
#elif __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// The place of block `rank` of the block cluster that corresponds to `mine`, in dynamic shared memory.
template <int blocks, class T>
__device__ T* in_block(int rank, T* mine, SourceLine where = SourceLine::current()) {
  if constexpr (blocks == 1) return mine;
#ifndef __CUDACC__
  return static_cast<T*>(host_cuda::in_block(rank, mine, where));
#elif __CUDA_ARCH__ >= 900
  T* theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return theirs;
#else
  __trap();
  return mine;
#endif
}

}  // namespace cairn::gpu
