// Memory of the CUDA device: what tensors on it are made of (core/storage.cpp).
//
// Blocks come from CUDA's own pool, in the order of the stream: freeing does not wait for the kernels that still use a
// block. The pool keeps what was freed, because a training step asks for the same sizes again.
#include "core/kernels/memory.h"

#include "core/dispatch.h"
#include "cuda/launch.h"

namespace cairn::gpu {
namespace {

void keep_freed_memory() {
  static const bool once = [] {
    int device = 0;
    cudaMemPool_t pool = nullptr;
    uint64_t everything = UINT64_MAX;
    check_cuda(cudaGetDevice(&device));
    check_cuda(cudaDeviceGetDefaultMemPool(&pool, device));
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &everything));
    return true;
  }();
  (void)once;
}

cudaMemcpyKind direction(Device to, Device from) {
  if (to == Device::cuda) return from == Device::cuda ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from == Device::cuda ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

}  // namespace

void* allocate(Stream stream, size_t bytes) {
  keep_freed_memory();
  void* block = nullptr;
  const cudaError_t status = cudaMallocAsync(&block, bytes, native(stream));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status);
  return block;
}

// Called by destructors, which must not throw; after an error of a kernel every call fails, and the first one has been
// reported.
void deallocate(Stream stream, void* block) {
  if (cudaFreeAsync(block, native(stream)) != cudaSuccess) cudaGetLastError();
}

void copy(Stream stream, void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, direction(to_device, from_device), native(stream)));
  // Between blocks of the device the order of the stream is enough.
  if (to_device != Device::cuda || from_device != Device::cuda) synchronize(stream);
}

void synchronize(Stream stream) { check_cuda(cudaStreamSynchronize(native(stream))); }

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver
  return 0;
}

}  // namespace cairn::gpu
