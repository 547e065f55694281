#pragma once
// How long work takes on its device, all of it and kernel by kernel.
#include <functional>
#include <map>
#include <string>

#include "core/device.h"

namespace cairn {

// Seconds that `work` takes: on the CPU by the clock; on CUDA between two events of the device, which begins when all
// is queued. So on CUDA the work must not wait for the device.
double seconds_of(Device device, const std::function<void()>& work);

// Seconds of each kernel of `work`, by name, its launches added up. On the CPU a name is an operation's ("softmax"),
// timed as the trace does (core/trace.h); on CUDA it is a kernel's ("softmax/softmax_long", core/kernels/timing.h).
std::map<std::string, double> kernel_seconds(Device device, const std::function<void()>& work);

}  // namespace cairn
