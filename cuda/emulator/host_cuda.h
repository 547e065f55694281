#pragma once
// The emulator's own interface: how kernels are run, and what is thrown when one goes wrong.
#include <cstdint>
#include <functional>

#include "core/error.h"
#include "cuda/emulator/cuda_runtime_api.h"
#include "cuda/source_line.h"

namespace cairn::host_cuda {

// A kernel did what a GPU would punish by hanging or by wrong numbers: see README.md. The message has the kernel's file
// and line, the block and the thread. The launch ends there, and the emulator can go on with the next one.
struct KernelError : DeviceError {
  using DeviceError::DeviceError;
};

// In which order blocks, and the threads of a block between two meeting points, are run. A correct kernel computes the
// same in each (up to the rounding of floating atomics).
enum class Order { forward, shuffled };

struct Options {
  int threads = 0;  // host threads, each running one block at a time; 0: as many as cairn::threads()
  Order order = Order::forward;
  uint64_t seed = 1;  // of the shuffled order
};

// Holds for the launches from now on. Before the first call the order is taken from the environment:
// CAIRN_HOST_CUDA_ORDER=forward|shuffled and CAIRN_HOST_CUDA_SEED=<number>.
// Errors: negative threads; an unknown order in the environment (UsageError, also at the first launch).
void configure(Options options);
Options options();

// Calls run_thread() in every thread of the grid. Returns what cudaLaunchKernel would return: an error for a shape that
// no GPU takes. Throws KernelError. `kernel` identifies the kernel to cudaFuncSetAttribute; `where` is where it was
// launched.
cudaError_t launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   const std::function<void()>& run_thread, SourceLine where = SourceLine::current());

// ---- for tests of what happens when a GPU has no memory or resources left
// The n-th allocation of device memory from now on fails, once, with cudaErrorMemoryAllocation; 0: none does.
void fail_allocation(int64_t n);
// The same for launches of kernels, with cudaErrorLaunchOutOfResources.
void fail_launch(int64_t n);

// How many blocks of device memory have not been freed.
int64_t live_blocks();

// The compute capability that the device says it has: 10 times the major version plus the minor one. Returns the one
// before.
int claim_architecture(int architecture);

// ---- for the emulator itself: remembers an error for cudaGetLastError, and gives it back.
cudaError_t report(cudaError_t error);

}  // namespace cairn::host_cuda
