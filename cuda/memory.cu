// The memory of tensors on the CUDA device (core/storage.cpp), the device and the stream.
//
// Memory comes from CUDA's own pool, in the order of the stream: freeing does not wait for kernels that still use it.
// The pool keeps freed memory, because a training step asks for the same sizes again.
#include "core/kernels/memory.h"

#include "core/dispatch.h"
#include "cuda/launch.h"

namespace cairn::gpu {
namespace {

// The pool. It never returns memory to the system by itself.
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
  void* memory = nullptr;
  pool();  // makes it keep freed memory
  const cudaError_t status = cudaMallocAsync(&memory, bytes, native(stream));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status);
  return memory;
}

// Destructors call this, so it must not throw. After an error of a kernel every call fails, but the error has been
// reported.
void deallocate(Stream stream, void* memory) {
  if (cudaFreeAsync(memory, native(stream)) != cudaSuccess) cudaGetLastError();
}

size_t free_memory(Stream stream) {
  synchronize(stream);
  check_cuda(cudaMemPoolTrimTo(pool(), 0));
  size_t free = 0, all = 0;
  check_cuda(cudaMemGetInfo(&free, &all));
  return free;
}

void copy(Stream stream, void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  // From memory of the host, which is pageable, the call returns when CUDA has read it.
  check_cuda(cudaMemcpyAsync(to, from, bytes, direction(to_device, from_device), native(stream)));
  if (to_device == Device::cpu) synchronize(stream);
}

void set_bytes(Stream stream, void* memory, uint8_t value, size_t bytes) {
  check_cuda(cudaMemsetAsync(memory, value, bytes, native(stream)));
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
  cudaError_t status = cudaGetDeviceCount(&count);
#if !CAIRN_CUDA_HOST
  cudaFuncAttributes attributes;
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, nothing);
#endif
  if (status == cudaSuccess) return {};
  cudaGetLastError();
  return concat("found no NVIDIA GPU that this build can use: ", cudaGetErrorString(status));
}

}  // namespace cairn::gpu
