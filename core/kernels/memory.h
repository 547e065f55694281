#pragma once
// Memory and time of the CUDA device, and the stream that work is queued on. Allocation happens in the order of the
// stream.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "core/device.h"

namespace cairn::gpu {

// The one stream of this process. Several host threads may use CUDA at the same time: their kernels, allocations and
// frees run in one order, and each thread gets the bits that it would get alone.
Stream stream();
// `bytes` of device memory; null if there is not enough.
void* allocate(Stream stream, size_t bytes);
void deallocate(Stream stream, void* memory);
// Free bytes of the device. Freed memory is kept for later requests; this gives it back to the system first, and
// waits for the device.
size_t free_memory(Stream stream);
// Copies between host and device or within the device. When it returns, the host may use both ends. Copies to the host
// wait for the device.
void copy(Stream stream, void* to, Device to_device, const void* from, Device from_device, size_t bytes);
// Sets every one of the bytes.
void set_bytes(Stream stream, void* memory, uint8_t value, size_t bytes);
// Waits until all work queued on the stream is done.
void synchronize(Stream stream);
// Seconds between the first and the last work that `queue` puts on the stream, by the device's clock. Where the device
// waits for the host, that time counts too. Returns when the work is done.
double device_seconds(Stream stream, const std::function<void()>& queue);
// The number of CUDA devices. 0 without a driver.
int device_count();
// Why this process cannot use its device: no driver, one that is too old, no device, or no architecture that this build
// was compiled for. Empty if it can. The device is the first one unless another was chosen.
std::string device_problem();

}  // namespace cairn::gpu
