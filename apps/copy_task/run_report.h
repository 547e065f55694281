#pragma once
// A run's report, from what its folder holds.
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// Writes the report of `run`, read back as `trained`, to `file`. Errors: `file` cannot be written.
void write_report(const Trained& trained, const std::filesystem::path& run, const std::filesystem::path& file);

}  // namespace cairn::copy_task
