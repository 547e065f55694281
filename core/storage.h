#pragma once
// A block of memory on a device, shared by the tensors over it, with a version.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/device.h"

namespace cairn {

class Storage {
 public:
  // Uninitialized memory, aligned to 64 bytes. If the environment has CAIRN_FILL_NAN=1, all bytes are 0xFF: as floating
  // numbers these are NaN, so tests notice reads before writes. Error: OutOfMemory, with the bytes requested, in use
  // and available.
  Storage(size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Rises with every change, so that an operation that saved this memory notices changes. No two storages have the
  // same version.
  uint64_t version() const { return version_; }
  void changed() { version_ = ++changes_; }

 private:
  void* data_;
  size_t bytes_;
  Device device_;
  inline static std::atomic<uint64_t> changes_ = 0;  // of all storages
  uint64_t version_ = ++changes_;
};

// The limit for allocations on a device, in bytes. CUDA: the free memory. CPU: all memory of the machine, or 15/16 of
// this process's smallest control group if that is less (limits.h).
size_t available_memory(Device device);

// Bytes of a device.
//   live     held by storages
//   peak     the most that `live` was since the last reset
//   cached   freed blocks (CPU: of 4 KB or more) that are kept for requests of the same size: a training step asks for
//            the same sizes again, and fresh pages and calls of CUDA's allocator are slow. At most 64 MB or the peak,
//            whichever is more; the oldest go first. All work on CUDA is in one order, so a block may be used again
//            while kernels queued earlier still use it.
//   scratch  (CPU) the part of `live` that threads keep for their next task (workspace.h)
struct MemoryCount {
  int64_t live = 0, peak = 0, cached = 0, scratch = 0;
};
MemoryCount memory(Device device);
void count_scratch(int64_t bytes);  // taken; negative: given back
void reset_peak_memory(Device device);
// Gives cached blocks back to the system.
void release_cached_memory(Device device);
// Whether to keep blocks that are freed from now on. Returns what held before: true, but false if the environment has
// CAIRN_KEEP_MEMORY=0. Kept blocks hide a use after free and a read of unwritten memory, so tests switch it off. A
// build with sanitizers keeps nothing.
bool keep_freed_memory(bool keep);

}  // namespace cairn
