#pragma once
// The emulator's own interface: options, errors of kernels, launches, and failures for tests.
#include <cstdint>
#include <functional>

#include "core/error.h"
#include "cuda/emulator/cuda_runtime_api.h"
#include "cuda/source_line.h"

namespace cairn::host_cuda {

// An error of a kernel that would hang a GPU or give wrong numbers: see README.md. The message has the kernel's file
// and line, the block and the thread. It ends the launch; later launches work.
struct KernelError : DeviceError {
  using DeviceError::DeviceError;
};

// The order in which blocks run, and the threads of a block between barriers. A correct kernel computes the same in
// each order (up to the rounding of floating-point atomics).
enum class Order { forward, shuffled };

struct Options {
  int threads = 0;  // host threads, each running one block at a time; 0: as many as cairn::threads()
  Order order = Order::forward;
  uint64_t seed = 1;  // of the shuffled order
};

// Sets the options of all later launches. Before the first call the order comes from the environment:
// CAIRN_HOST_CUDA_ORDER=forward|shuffled and CAIRN_HOST_CUDA_SEED=<number>.
// Errors: negative threads; an unknown order in the environment (UsageError, also at the first launch).
void configure(Options options);
Options options();

// Calls run_thread() in every thread of the grid. Returns the result of cudaLaunchKernel: an error for a shape that no
// GPU accepts. Throws KernelError. `kernel` identifies the kernel to cudaFuncSetAttribute; `where` is the line of the
// launch; `block_cluster` blocks, neighbors in x, form a block cluster. In an `overlapped` launch every thread must
// call wait_for_earlier_launches(), which only counts the calls, because launches run one after another.
cudaError_t launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   const std::function<void()>& run_thread, SourceLine where = SourceLine::current(),
                   int block_cluster = 1, bool overlapped = false);
void wait_for_earlier_launches();

// ---- failures for tests
// The n-th allocation of device memory from now on fails, once, with cudaErrorMemoryAllocation. 0: none fails.
void fail_allocation(int64_t n);

// How many blocks of device memory have not been freed, and how many were ever requested.
int64_t live_blocks();
int64_t allocations();

// Sets the compute capability of the device: 10 times the major version plus the minor one. Returns the previous one.
int claim_architecture(int architecture);

// ---- for a tool that watches a kernel's memory (apps/lessons/meter.h), which these two tell what orders accesses
// How many barriers the block of the calling CUDA thread has completed. It counts on from block to block.
unsigned completed_barriers();
// Called when lanes of a warp have met in __syncwarp, by one of them. Null: nobody watches.
inline void (*watch_syncwarp)(unsigned lanes) = nullptr;

// ---- for the emulator itself: stores an error for cudaGetLastError, and returns it.
cudaError_t report(cudaError_t error);

}  // namespace cairn::host_cuda
