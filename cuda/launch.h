#pragma once
// Launches kernels, for nvcc and for the emulator of cuda/emulator alike, instead of <<<>>>. Every launch and every
// call of CUDA is checked. Kernel files include this header instead of CUDA's.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "cuda/source_line.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "cuda/emulator/cuda_runtime.h"
#include "cuda/emulator/host_cuda.h"
#endif

namespace cairn::gpu {

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Throws DeviceError with CUDA's message unless the call succeeded:
// "CUDA: out of memory (cudaErrorMemoryAllocation) at memory.cu:33".
inline void check_cuda(cudaError_t status, SourceLine where = SourceLine::current()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // resets the error, which is reported here
  throw DeviceError(
      concat("CUDA: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ") at ", to_string(where)));
}

// The blocks of a launch. Kernels count blocks in 64 bits, CUDA in 32. Only this class converts them.
// Error: DeviceError for more blocks than a grid can have (2147483647 in x, 65535 in y and z), or a negative number.
struct Grid : dim3 {
  Grid(int64_t in_x, int64_t in_y = 1, int64_t in_z = 1, SourceLine where = SourceLine::current())
      : dim3(checked("x", in_x, 0x7fffffff, where), checked("y", in_y, 65535, where),
             checked("z", in_z, 65535, where)) {}

 private:
  static unsigned checked(const char* axis, int64_t n, int64_t maximum, SourceLine where) {
    check<DeviceError>(0 <= n && n <= maximum, "a launch needs ", n, " blocks in ", axis, ", at most ", maximum,
                       ", at ", to_string(where));
    return unsigned(n);
  }
};

// An attribute of the device. (The runtime has these values cached.)
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

// Whether the build has code for an architecture (100 times a compute capability) or a newer one that the device runs.
inline bool runs_code_for(int architecture) {
  const int major = device_attribute(cudaDevAttrComputeCapabilityMajor);
  const int minor = device_attribute(cudaDevAttrComputeCapabilityMinor);
#ifdef __CUDA_ARCH_LIST__
  constexpr int compiled[] = {__CUDA_ARCH_LIST__};
#else
  constexpr int compiled[] = {800, 900};
#endif
  for (const int has : compiled)
    if (has >= architecture && has <= 100 * major + 10 * minor) return true;
  return false;
}

// How many multiprocessors the device has.
inline int multiprocessors() { return device_attribute(cudaDevAttrMultiProcessorCount); }

// The shape of a launch: blocks, threads of a block, bytes of dynamic shared memory, and the stream.
struct Launch {
  Grid grid;
  dim3 block;
  size_t shared = 0;
  Stream stream = {};
  SourceLine where = SourceLine::current();
  int block_cluster = 1;    // blocks of a block cluster (cuda/block_cluster.cuh)
  bool overlapped = false;  // see below
};

// The same launch, overlapped with the one before it: on compute capability 9.0 and newer its blocks may start while
// the last blocks before it run ("Programmatic Dependent Launch" in the CUDA C++ Programming Guide). Every thread of
// the kernel must call wait_for_earlier_launches() before it reads or writes memory, or ends. A profiler counts that
// wait as time of the kernel.
inline Launch overlapped(Launch shape) {
  shape.overlapped = true;
  return shape;
}

// Waits until the launch before has ended, and so all earlier ones, for which it has waited itself. Then their
// results can be read, and their memory can be written. After all blocks have arrived here, those of the next launch
// may start, if it is overlapped; then they wait here.
__device__ inline void wait_for_earlier_launches() {
#ifndef __CUDACC__
  host_cuda::wait_for_earlier_launches();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Bytes of shared memory that a block may have on every GPU with tensor cores for bfloat16; 8.6, 8.9 and 12.0 have no
// more. (7.5 has 64 KB.)
inline constexpr size_t shared_everywhere = 99 * 1024;

// Allows a kernel `bytes` of dynamic shared memory. Calls CUDA only if it needs more than before.
inline void allow_shared(const void* kernel, size_t bytes, SourceLine where) {
  static std::mutex mutex;
  static std::map<const void*, size_t> allowed;
  const std::lock_guard guard(mutex);
  if (bytes <= allowed[kernel]) return;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)), where);
  allowed[kernel] = bytes;
}

// The launch itself, for the two functions below.
template <class... Parameters, class... Args>
void launch_allowed(void (*kernel)(Parameters...), const Launch& shape, Args&&... args) {
  const void* address = reinterpret_cast<const void*>(kernel);
  std::tuple<Parameters...> parameters(std::forward<Args>(args)...);
#ifdef __CUDACC__
  std::apply(
      [&](auto&... parameter) {
        void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameter))..., nullptr};
        cudaLaunchAttribute attributes[2]{};
        cudaLaunchConfig_t config{shape.grid, shape.block, shape.shared, native(shape.stream), attributes, 0};
        const auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
          attributes[config.numAttrs].id = id;
          return attributes[config.numAttrs++].val;
        };
        if (shape.block_cluster > 1)
          add(cudaLaunchAttributeClusterDimension).clusterDim = {unsigned(shape.block_cluster), 1, 1};
        // Code for an older generation, compiled by the driver, would not wait.
        if (shape.overlapped && runs_code_for(std::max(900, 100 * device_attribute(cudaDevAttrComputeCapabilityMajor))))
          add(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed = 1;
        check_cuda(cudaLaunchKernelExC(&config, address, addresses), shape.where);
      },
      parameters);
#else
  const auto run_thread = [&] { std::apply(kernel, parameters); };
  check_cuda(host_cuda::launch(address, shape.grid, shape.block, shape.shared, run_thread, shape.where,
                               shape.block_cluster, shape.overlapped),
             shape.where);
#endif
}

// kernel<<<grid, block, shared, stream>>>(args...), checked. Requests shared memory beyond 48 KB.
// Error: DeviceError with CUDA's message, for instance for an empty grid. So callers skip launches for empty problems.
// More than shared_everywhere is an error, too.
template <class... Parameters, class... Args>
void launch(void (*kernel)(Parameters...), const Launch& shape, Args&&... args) {
  check<DeviceError>(shape.shared <= shared_everywhere, "a launch needs ", shape.shared,
                     " bytes of shared memory, at most ", shared_everywhere, ", at ", to_string(shape.where));
  if (shape.shared > 48 * 1024) allow_shared(reinterpret_cast<const void*>(kernel), shape.shared, shape.where);
  launch_allowed(kernel, shape, std::forward<Args>(args)...);
}

// Whether the kernel has been allowed its dynamic shared memory. tests/sass.py reads the size from the variable's name.
template <auto kernel, size_t bytes>
inline std::atomic<bool> allowed = false;

// The same for a kernel that always has `bytes` of dynamic shared memory.
template <auto kernel, size_t bytes, class... Args>
void launch(Launch shape, Args&&... args) {
  static_assert(bytes <= shared_everywhere);
  if (!allowed<kernel, bytes>) {
    allow_shared(reinterpret_cast<const void*>(kernel), bytes, shape.where);
    allowed<kernel, bytes> = true;
  }
  shape.shared = bytes;
  launch_allowed(kernel, shape, std::forward<Args>(args)...);
}

// The block's dynamic shared memory, aligned to 16 bytes. Uninitialized.
template <class T>
__device__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char cairn_dynamic_shared[];
  return reinterpret_cast<T*>(cairn_dynamic_shared);
#else
  return static_cast<T*>(host_cuda::dynamic_shared_memory());
#endif
}

// n / size, rounded up.
constexpr int64_t ceil_div(int64_t n, int64_t size) { return (n + size - 1) / size; }
// The same, but at least 1. An axis without elements has a sum too: 0.
constexpr int64_t count_chunks(int64_t n, int64_t size) { return n == 0 ? 1 : ceil_div(n, size); }

}  // namespace cairn::gpu
