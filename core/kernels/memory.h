#pragma once
// Memory of the CUDA device. Allocation is ordered with the work of the stream.
#include <cstddef>

#include "core/device.h"

namespace cairn::gpu {

// `bytes` of device memory, or null if there are not as many.
void* allocate(Stream stream, size_t bytes);
void deallocate(Stream stream, void* block);
// Copies between host and device or within the device; returns when the host may use both ends.
void copy(Stream stream, void* to, Device to_device, const void* from, Device from_device, size_t bytes);
// Waits until all work queued on the stream is done.
void synchronize(Stream stream);
// How many CUDA devices can be used. 0 without a driver.
int device_count();

}  // namespace cairn::gpu
