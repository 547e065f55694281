#pragma once
// Time by the clock of the CUDA device.
#include <functional>

#include "core/device.h"

namespace cairn::gpu {

// Seconds between the first and the last work that `queue` puts on the stream, by the device's clock. Where the device
// waits for the host, that time counts too. Returns when the work is done.
double device_seconds(Stream stream, const std::function<void()>& queue);

}  // namespace cairn::gpu
