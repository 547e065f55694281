#pragma once
// Time by the clock of the CUDA device.
#include <functional>

#include "core/device.h"

namespace cairn::gpu {

// Seconds that the device takes for the work that `queue` puts on the stream. The device begins when all of it is
// queued, so the host's own time does not count, unless `queue` waits for the device. Returns when the work is done.
double device_seconds(Stream stream, const std::function<void()>& queue);

}  // namespace cairn::gpu
