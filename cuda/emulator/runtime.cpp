// Errors, the device, streams, and the device's memory, which is the host's.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "cuda/emulator/host_cuda.h"

#if CAIRN_HOST_CUDA_ASAN
// A request for too much memory returns null instead of ending the program.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
#endif

namespace {

using namespace cairn::host_cuda;

thread_local cudaError_t last_error = cudaSuccess;

struct {
  cudaError_t error;
  const char *name, *words;
} constexpr errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
};

// Blocks of device memory, by address.
class Blocks {
 public:
  // Null: out of memory.
  void* take(size_t bytes) {
    void* block = nullptr;
    if (posix_memalign(&block, 256, bytes) != 0) return nullptr;
    std::memset(block, 0xff, bytes);
    std::lock_guard guard(mutex_);
    blocks_[static_cast<char*>(block)] = bytes;
    bytes_ += bytes;
    return block;
  }
  bool give_back(void* block) {
    {
      std::lock_guard guard(mutex_);
      const auto entry = blocks_.find(static_cast<char*>(block));
      if (entry == blocks_.end()) return false;
      bytes_ -= entry->second;
      blocks_.erase(entry);
    }
    std::free(block);
    return true;
  }
  bool contains(const void* address) {
    std::lock_guard guard(mutex_);
    auto* const byte = static_cast<char*>(const_cast<void*>(address));
    auto after = blocks_.upper_bound(byte);
    return after != blocks_.begin() && byte < std::prev(after)->first + std::prev(after)->second;
  }
  size_t bytes() {
    std::lock_guard guard(mutex_);
    return bytes_;
  }
  size_t count() {
    std::lock_guard guard(mutex_);
    return blocks_.size();
  }

 private:
  std::mutex mutex_;
  std::map<char*, size_t> blocks_;
  size_t bytes_ = 0;
};

// Never destroyed, because static tensors may be freed later.
Blocks& device_blocks() {
  static Blocks* instance = new Blocks;
  return *instance;
}

std::atomic<int64_t> failing_allocation = 0;  // 1: the next allocation fails; 0: none
std::atomic<int64_t> requested_allocations = 0;

// CAIRN_HOST_CUDA_MEMORY bytes, or as much as the machine has.
size_t device_memory() {
  static const char* given = std::getenv("CAIRN_HOST_CUDA_MEMORY");
  if (given) return std::strtoull(given, nullptr, 10);
  return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
}
size_t free_memory() { return device_memory() - std::min(device_memory(), device_blocks().bytes()); }

// 10 times the compute capability of the device.
std::atomic<int> architecture = 90;

}  // namespace

namespace cairn::host_cuda {

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void fail_allocation(int64_t n) { failing_allocation = n; }
int64_t live_blocks() { return int64_t(device_blocks().count()); }
int64_t allocations() { return requested_allocations; }
int claim_architecture(int value) { return architecture.exchange(value); }

}  // namespace cairn::host_cuda

const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& known : errors)
    if (known.error == error) return known.name;
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const auto& known : errors)
    if (known.error == error) return known.words;
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

// ---- the device

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 1; break;
    case cudaDevAttrComputeCapabilityMajor: *value = architecture / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = architecture % 10; break;
    case cudaDevAttrClusterLaunch: *value = architecture >= 90; break;
  }
  return cudaSuccess;
}

// ---- streams. Whatever a program asks for is done when the call returns.

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = nullptr;  // all are the same
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// ---- memory

cudaError_t cudaMalloc(void** block, size_t bytes) {
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  ++requested_allocations;
  if (failing_allocation-- != 1 && bytes <= free_memory()) *block = device_blocks().take(bytes);
  return *block ? cudaSuccess : report(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* block) {
  if (!block) return cudaSuccess;
  return device_blocks().give_back(block) ? cudaSuccess : report(cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t) { return cudaMalloc(block, bytes); }
cudaError_t cudaFreeAsync(void* block, cudaStream_t) { return cudaFree(block); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = device_memory();
  *free = free_memory();
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (device_blocks().contains(to) != to_device || device_blocks().contains(from) != from_device)
    return report(cudaErrorInvalidValue);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemset(void* block, int byte, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (!device_blocks().contains(block)) return report(cudaErrorInvalidValue);
  std::memset(block, byte, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int byte, size_t bytes, cudaStream_t) {
  return cudaMemset(block, byte, bytes);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
