#pragma once
// A recording (core/trace.h) for people: a file for chrome://tracing or https://ui.perfetto.dev, and a table.
#include <string>

#include "core/trace.h"

namespace cairn {

// Writes the Chrome trace event format: times in microseconds, nesting by time, one track a thread. `program` names the
// process. Errors: the file cannot be opened (UsageError) or written.
void write_trace(const std::string& path, const trace::Recording& recording, const std::string& program);

// The `maximum` kinds of span with the largest self time, which is what was not spent in spans inside: one line each
// with self time, its share, total time and count. Spans under a gradient are counted apart from those of the forward
// pass, and a span inside one of its own kind adds nothing to their total.
std::string trace_summary(const trace::Recording& recording, size_t maximum = 15);

}  // namespace cairn
