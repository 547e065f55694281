// The memory of tensors on the CUDA device (core/storage.cpp), the device and the stream.
//
// Blocks come from CUDA's own pool, in the order of the stream: freeing does not wait for kernels that still use a
// block. The pool keeps freed blocks, because a training step asks for the same sizes again.
#include "core/kernels/memory.h"

#include <cstring>
#include <mutex>

#include "core/dispatch.h"
#include "cuda/launch.h"

namespace cairn::gpu {
namespace {

// The pool of blocks. It never returns memory to the system by itself.
cudaMemPool_t pool() {
  static const cudaMemPool_t only = [] {
    int device = 0;
    cudaMemPool_t pool = nullptr;
    uint64_t everything = UINT64_MAX;
    check_cuda(cudaGetDevice(&device));
    check_cuda(cudaDeviceGetDefaultMemPool(&pool, device));
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &everything));
    return pool;
  }();
  return only;
}

cudaMemcpyKind direction(Device to, Device from) {
  if (to == Device::cuda) return from == Device::cuda ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from == Device::cuda ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

// A ring of pinned memory for small copies to the device. Their bytes wait here, so the host need not wait.
class Ring {
 public:
  static constexpr size_t size = size_t{1} << 20, maximum = size / 8;

  // Copies into the ring and queues the copy out of it, both under the lock: a thread that starts the ring over waits
  // for queued copies, so there must be no copy that is not queued yet.
  void copy(Stream stream, void* to, const void* from, size_t bytes) {
    const std::lock_guard guard(mutex_);
    if (!memory_) check_cuda(cudaMallocHost(&memory_, size));
    if (next_ + bytes > size) {
      check_cuda(cudaDeviceSynchronize());  // the device has read the whole ring
      next_ = 0;
    }
    void* place = static_cast<char*>(memory_) + next_;
    next_ += (bytes + 255) / 256 * 256;
    std::memcpy(place, from, bytes);
    check_cuda(cudaMemcpyAsync(to, place, bytes, cudaMemcpyHostToDevice, native(stream)));
  }
  static Ring& instance() {
    static Ring* ring = new Ring;  // never destroyed: the device may be reading
    return *ring;
  }

 private:
  std::mutex mutex_;
  void* memory_ = nullptr;
  size_t next_ = 0;
};

// The build has code for a device if it has this kernel for it.
[[maybe_unused]] __global__ void nothing() {}

}  // namespace

Stream stream() {
  static const cudaStream_t only = [] {
    cudaStream_t created = nullptr;
    check_cuda(cudaStreamCreate(&created));
    return created;
  }();
  return {only};
}

void* allocate(Stream stream, size_t bytes) {
  void* block = nullptr;
  pool();  // makes it keep freed blocks
  const cudaError_t status = cudaMallocAsync(&block, bytes, native(stream));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status);
  return block;
}

// Destructors call this, so it must not throw. After an error of a kernel every call fails, but the error has been
// reported.
void deallocate(Stream stream, void* block) {
  if (cudaFreeAsync(block, native(stream)) != cudaSuccess) cudaGetLastError();
}

void release_freed_memory(Stream stream) {
  synchronize(stream);
  check_cuda(cudaMemPoolTrimTo(pool(), 0));
}

size_t free_memory(Stream stream) {
  release_freed_memory(stream);
  size_t free = 0, all = 0;
  check_cuda(cudaMemGetInfo(&free, &all));
  return free;
}

void copy(Stream stream, void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (to_device == Device::cuda && from_device == Device::cpu && bytes <= Ring::maximum)
    return Ring::instance().copy(stream, to, from, bytes);
  check_cuda(cudaMemcpyAsync(to, from, bytes, direction(to_device, from_device), native(stream)));
  if (to_device != Device::cuda || from_device != Device::cuda) synchronize(stream);
}

void set_bytes(Stream stream, void* block, uint8_t value, size_t bytes) {
  check_cuda(cudaMemsetAsync(block, value, bytes, native(stream)));
}

void synchronize(Stream stream) { check_cuda(cudaStreamSynchronize(native(stream))); }

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver
  return 0;
}

std::string device_problem() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
#if !CAIRN_CUDA_HOST
  if (found == cudaErrorInsufficientDriver) {  // older than the runtime, or none at all
    const auto version = [](int number) { return concat(number / 1000, '.', number % 1000 / 10); };
    int driver = 0;
    check_cuda(cudaDriverGetVersion(&driver));
    if (driver == 0) return "no NVIDIA driver was found";
    return concat("the NVIDIA driver is too old: it supports CUDA ", version(driver), ", and this build needs ",
                  version(CUDART_VERSION));
  }
#endif
  cudaGetLastError();
  if (count == 0) return concat("no usable NVIDIA GPU was found: ", cudaGetErrorString(found));
#if !CAIRN_CUDA_HOST
  int device = 0, has_pools = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device));
  if (!has_pools) return "the GPU has no memory pools (cudaMallocAsync), which some virtual GPUs lack";
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, nothing); status != cudaSuccess) {
    cudaGetLastError();
    cudaDeviceProp gpu;
    if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction)
      return cudaGetErrorString(status);
    check_cuda(cudaGetDeviceProperties(&gpu, device));
    return concat("this build has no code for the ", gpu.name, " (compute capability ", gpu.major, '.', gpu.minor,
                  "); configure it with -DCMAKE_CUDA_ARCHITECTURES=native");
  }
#endif
  return {};
}

}  // namespace cairn::gpu
