// CUDA's runtime interface over the memory of the host.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "cuda/host/cuda_runtime_api.h"

struct CUstream_st {};
struct CUmemPoolHandle_st {};

namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// The blocks of device memory, by address.
class Blocks {
 public:
  void add(void* block, size_t bytes) {
    std::lock_guard guard(mutex_);
    blocks_[static_cast<char*>(block)] = bytes;
  }
  bool remove(void* block) {
    std::lock_guard guard(mutex_);
    return blocks_.erase(static_cast<char*>(block)) == 1;
  }
  bool contains(const void* address) {
    std::lock_guard guard(mutex_);
    auto* const byte = static_cast<char*>(const_cast<void*>(address));
    auto after = blocks_.upper_bound(byte);
    return after != blocks_.begin() && byte < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  std::mutex mutex_;
  std::map<char*, size_t> blocks_;
};
Blocks& blocks() {
  static Blocks* instance = new Blocks;  // never destroyed: static tensors may be freed later than anything of ours
  return *instance;
}

// As much as the machine has.
size_t device_memory() { return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE)); }

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
  }
  return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaMalloc(void** block, size_t bytes) {
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > device_memory() || posix_memalign(block, 256, bytes) != 0) return report(cudaErrorMemoryAllocation);
  std::memset(*block, 0xff, bytes);
  blocks().add(*block, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* block) {
  if (!block) return cudaSuccess;
  if (!blocks().remove(block)) return report(cudaErrorInvalidValue);
  std::free(block);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t) { return cudaMalloc(block, bytes); }
cudaError_t cudaFreeAsync(void* block, cudaStream_t) { return cudaFree(block); }

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return report(cudaErrorInvalidMemcpyDirection);
  if (bytes == 0) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (blocks().contains(to) != to_device || blocks().contains(from) != from_device))
    return report(cudaErrorInvalidValue);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* block, int byte, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (!blocks().contains(block)) return report(cudaErrorInvalidValue);
  std::memset(block, byte, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int byte, size_t bytes, cudaStream_t) {
  return cudaMemset(block, byte, bytes);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static CUmemPoolHandle_st only;
  *pool = &only;
  return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
