#pragma once
// How long work takes on its device, all of it and operation by operation.
#include <functional>
#include <map>
#include <string>

#include "core/device.h"

namespace cairn {

// Seconds that `work` takes: on the CPU by the clock; on CUDA between two events of the device, which begins when all
// is queued. So on CUDA the work must not wait for the device.
double seconds_of(Device device, const std::function<void()>& work);

// Seconds of each operation of `work`, by name ("softmax"), its calls added up. They are the spans of core/trace.h. On
// CUDA the host waits for the device at the end of each span, so operations do not overlap.
std::map<std::string, double> operation_seconds(Device device, const std::function<void()>& work);

}  // namespace cairn
