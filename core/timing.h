#pragma once
// How long work takes on its device, as a whole and by operation.
#include <functional>
#include <map>
#include <string>

#include "core/device.h"

namespace cairn {

// Seconds that `work` takes. On the CPU, by the clock. On CUDA, between two events of the device, which include the
// time in which the device waits for the host.
double seconds_of(Device device, const std::function<void()>& work);

// Seconds of each operation of `work`, by name ("softmax"); the calls of an operation are added up. Times are those of
// the spans of core/trace.h. On CUDA the host waits for the device at the end of each span, so operations do not
// overlap.
std::map<std::string, double> operation_seconds(Device device, const std::function<void()>& work);

}  // namespace cairn
