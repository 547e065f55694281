#pragma once
// A block of memory on a device, shared by the tensors that look at it, with a count of the changes made to it.
#include <cstddef>
#include <cstdint>

#include "core/device.h"

namespace cairn {

class Storage {
 public:
  // Uninitialized memory, aligned to 64 bytes; where the environment has CAIRN_FILL_NAN=1, bytes of 0xFF, which as
  // floating numbers are NaN, so that tests see what was read before it was written. Error: OutOfMemory, with the bytes
  // requested, in use and (on CUDA) free.
  Storage(size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // Rises with every change, so that an operation which saved this memory can tell that it has changed.
  uint64_t version() const { return version_; }
  void changed() { ++version_; }

 private:
  void* data_;
  size_t bytes_;
  Device device_;
  uint64_t version_ = 0;
};

// What a device can still give: free memory of the GPU; for the CPU, whose pages come when touched, the machine's
// memory, or 15/16 of what its control group leaves to this process (limits.h).
size_t available_memory(Device device);

// Bytes held by storages on a device: now, and the most since the last reset; and (of the CPU) by freed blocks that are
// kept for the next request of the same size, because a training step asks for the same sizes again and fresh pages are
// slow: at most 64 MB or the peak, whichever is more. Those freed longest ago go first. scratch: what of `live` threads
// keep for their next task (workspace.h).
struct MemoryCount {
  int64_t live = 0, peak = 0, cached = 0, scratch = 0;
};
MemoryCount memory(Device device);
void count_scratch(int64_t bytes);  // taken, or (negative) given back
void reset_peak_memory(Device device);
// Gives the CPU's cached blocks back to the system.
void release_cached_memory();

}  // namespace cairn
