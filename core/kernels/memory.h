#pragma once
// Memory of the CUDA device, and the stream that work is queued on. Allocation is ordered with the work of the stream.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/device.h"

namespace cairn::gpu {

// The one stream of this process. Host threads may use CUDA at the same time: what they queue, blocks that they
// allocate and free too, runs in one order, and each gets the bits that it would get alone.
Stream stream();
// `bytes` of device memory, or null if there are not as many.
void* allocate(Stream stream, size_t bytes);
void deallocate(Stream stream, void* block);
// Freed blocks are kept for the next request; this gives them back to the system, and waits for the device.
void release_freed_memory(Stream stream);
// Bytes of the device that nobody uses. Releases freed memory.
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
// Why the device of this process, the first unless another was chosen, cannot be used: no driver or too old a one, no
// device, no memory pools, none of the architectures that this build was compiled for. Empty if it can be.
std::string device_problem();

}  // namespace cairn::gpu
