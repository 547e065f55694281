#pragma once
// Memory of the CUDA device, the stream that work is queued on, and work that is recorded to be done again. Allocation
// is ordered with the work of the stream.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/device.h"

namespace cairn::gpu {

// The one stream of this process.
Stream stream();
// `bytes` of device memory, or null if there are not as many.
void* allocate(Stream stream, size_t bytes);
void deallocate(Stream stream, void* block);
// Freed blocks are kept for the next request; this gives them back to the system, and waits for the device.
void release_freed_memory(Stream stream);
// Bytes of the device that nobody uses. Releases freed memory, unless work is being recorded.
size_t free_memory(Stream stream);
// Copies between host and device or within the device; when it returns, the host may use both ends. Only copies to the
// host wait for the device, and large ones from it.
void copy(Stream stream, void* to, Device to_device, const void* from, Device from_device, size_t bytes);
// Sets every byte of a block.
void set_bytes(Stream stream, void* block, uint8_t value, size_t bytes);
// Waits until all work queued on the stream is done.
void synchronize(Stream stream);
// How many CUDA devices there are. 0 without a driver.
int device_count();
// Why the device of this process, the first unless another was chosen, cannot be used: no driver, no device, no memory
// pools, none of the architectures that this build was compiled for. Empty if it can be.
std::string device_problem();

// Work of a stream, recorded instead of done, and then replayed (a CUDA graph). While it is recorded nothing can be
// read back. Memory that it takes is its own until the recording ends: a replay writes to the same addresses, so a
// tensor that was made by recorded work and kept holds what the last replay left there. What is copied from the host is
// copied as it was when it was recorded.
class Recording {
 public:
  // From now on the stream's work is recorded. Error: another recording is under way.
  explicit Recording(Stream stream);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // The end of what is recorded. Error (DeviceError): the work did something that cannot be recorded.
  void finish();
  // Queues all of it.
  void replay();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::gpu
