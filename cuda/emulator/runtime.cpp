// Errors, the device, and its memory, which is the host's.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "cuda/emulator/host_cuda.h"
#include "cuda/emulator/runtime.h"
#include "cuda/emulator/sanitizers.h"

#if CAIRN_HOST_CUDA_ASAN
// More memory than there is is for the caller to notice. Without /proc the sanitizer can neither look for leaks nor
// read options, and knows no stack, so that what it says after an exception may be wrong: there it ends no program.
extern "C" const char* __asan_default_options() {
  return access("/proc/self/task", R_OK) == 0
             ? "allocator_may_return_null=1"
             : "allocator_may_return_null=1:detect_leaks=0:halt_on_error=0:log_path=/tmp/asan";
}
#endif

struct CUmemPoolHandle_st {};

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
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
};

// Blocks of memory, by address.
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

// Never destroyed: static tensors may be freed later than anything of ours.
Blocks& device_blocks() {
  static Blocks* instance = new Blocks;
  return *instance;
}
Blocks& pinned_blocks() {
  static Blocks* instance = new Blocks;
  return *instance;
}

// Counts attempts, and lets the one fail that a test has asked for.
class Attempts {
 public:
  void fail(int64_t n) { countdown_ = n; }
  bool allowed() {
    ++count_;
    return countdown_-- != 1;
  }
  int64_t count() const { return count_; }

 private:
  std::atomic<int64_t> count_ = 0, countdown_ = 0;
};
Attempts allocations, launches;

// As much as the machine has, or CAIRN_HOST_CUDA_MEMORY bytes.
size_t device_memory() {
  static const char* given = std::getenv("CAIRN_HOST_CUDA_MEMORY");
  if (given) return std::strtoull(given, nullptr, 10);
  return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
}

cudaError_t check_copy(const void* to, const void* from, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDeviceToDevice) return cudaErrorInvalidMemcpyDirection;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool right = device_blocks().contains(to) == to_device && device_blocks().contains(from) == from_device;
  return right ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

namespace cairn::host_cuda {

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t may_launch() { return launches.allowed() ? cudaSuccess : cudaErrorLaunchOutOfResources; }

void fail_allocation(int64_t n) { allocations.fail(n); }
void fail_launch(int64_t n) { launches.fail(n); }
Counts counts() { return {allocations.count(), launches.count(), int64_t(device_blocks().count())}; }
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
cudaError_t cudaSetDevice(int device) { return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

// ---- memory

cudaError_t cudaMalloc(void** block, size_t bytes) {
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (allocations.allowed() && bytes <= device_memory() - std::min(device_memory(), device_blocks().bytes()))
    *block = device_blocks().take(bytes);
  return *block ? cudaSuccess : report(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* block) {
  if (!block) return cudaSuccess;
  return device_blocks().give_back(block) ? cudaSuccess : report(cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t) { return cudaMalloc(block, bytes); }
cudaError_t cudaFreeAsync(void* block, cudaStream_t) { return cudaFree(block); }

cudaError_t cudaMallocHost(void** block, size_t bytes) {
  *block = nullptr;
  if (bytes <= device_memory()) *block = pinned_blocks().take(bytes);
  return *block ? cudaSuccess : report(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* block) {
  if (!block) return cudaSuccess;
  return pinned_blocks().give_back(block) ? cudaSuccess : report(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = device_memory();
  *free = *total - std::min(*total, device_blocks().bytes());
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  if (const auto error = check_copy(to, from, kind)) return report(error);
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

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static CUmemPoolHandle_st only;
  *pool = &only;
  return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

// ---- what the device claims to be

namespace {

int checked_architecture(int value, const char* from) {
  cairn::check<cairn::UsageError>(value >= 10 && value <= 999, from, ": expected a compute capability such as 75, got ",
                                  value);
  return value;
}

std::atomic<int>& architecture() {
  static std::atomic<int> value = [] {
    const char* const name = "CAIRN_HOST_CUDA_ARCHITECTURE";
    const char* const text = std::getenv(name);
    return checked_architecture(text ? std::atoi(text) : 90, name);
  }();
  return value;
}

}  // namespace

static std::atomic<bool> has_memory_pools = true;
bool cairn::host_cuda::claim_memory_pools(bool has) { return has_memory_pools.exchange(has); }

int cairn::host_cuda::claim_architecture(int value) {
  return architecture().exchange(checked_architecture(value, "host_cuda::claim_architecture"));
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return report(cudaErrorInvalidDevice);
  const int now = architecture();
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 1; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = now / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = now % 10; return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported: *value = has_memory_pools; return cudaSuccess;
  }
  return report(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return report(cudaErrorInvalidDevice);
  *properties = {"cairn's emulator",  device_memory(),    shared_by_default, shared_on_request, 1, 1024, 32,
                 architecture() / 10, architecture() % 10};
  return cudaSuccess;
}
