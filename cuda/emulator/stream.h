#pragma once
// What the emulator's files share of CUDA's runtime: errors and the memory of the device (runtime.cpp), and what a
// capture under way does not allow (stream.cpp).
#include "cuda/emulator/cuda_runtime_api.h"

namespace cairn::host_cuda {

// Bytes of dynamic shared memory that a kernel may use.
inline constexpr size_t shared_by_default = 48 * 1024, shared_on_request = 227 * 1024;

// Remembers an error for cudaGetLastError, and gives it back.
cudaError_t report(cudaError_t error);

// A block of device memory, filled with 0xFF; null for 0 bytes. Error: cudaErrorMemoryAllocation.
cudaError_t take_block(void** block, size_t bytes);
// Error: not a block of the device, or no longer (cudaErrorInvalidValue).
cudaError_t return_block(void* block);
// What cudaFree does once it may: also with memory of a graph.
cudaError_t free_now(void* block);

// Whether a test has asked for this launch to fail (cudaErrorLaunchOutOfResources).
cudaError_t may_launch();

// The error of a call that is no operation of a stream, if a capture is under way that does not allow it. Such a
// capture is broken by the attempt. Unsafe: the graph would not repeat it (cudaMalloc). Synchronous: work of the legacy
// stream that the host waits for (cudaMemcpy).
cudaError_t refuse_unsafe_call();
cudaError_t refuse_synchronous_call();

}  // namespace cairn::host_cuda
