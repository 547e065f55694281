#pragma once
// A recording (core/trace.h) as a file for chrome://tracing or https://ui.perfetto.dev.
#include <string>

#include "core/trace.h"

namespace cairn {

// Writes the Chrome trace event format: times in microseconds, nesting by time, one track a thread. `program` names the
// process. Errors: the file cannot be opened (UsageError) or written.
void write_trace(const std::string& path, const trace::Recording& recording, const std::string& program);

}  // namespace cairn
