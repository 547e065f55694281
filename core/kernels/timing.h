#pragma once
// Time by the clock of the CUDA device.
#include <functional>

#include "core/device.h"

namespace cairn::gpu {

// Seconds that the device takes for what `queue` puts on the stream. All of it is queued before the device begins, so
// the host's own time does not count, unless `queue` waits for the device. Waits until the work is done.
double device_seconds(Stream stream, const std::function<void()>& queue);

}  // namespace cairn::gpu
