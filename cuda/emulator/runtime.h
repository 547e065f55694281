#pragma once
// What runtime.cpp shares with the emulator's other files.
#include "cuda/emulator/cuda_runtime_api.h"

namespace cairn::host_cuda {

// Bytes of dynamic shared memory that a kernel may use.
inline constexpr size_t shared_by_default = 48 * 1024, shared_on_request = 227 * 1024;

// Remembers an error for cudaGetLastError, and gives it back.
cudaError_t report(cudaError_t error);

// Whether a test has asked for this launch to fail (cudaErrorLaunchOutOfResources).
cudaError_t may_launch();

}  // namespace cairn::host_cuda
