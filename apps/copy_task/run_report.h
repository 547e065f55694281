#pragma once
// A run's report, from what its folder holds.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "apps/copy_task/report.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// What goes into every checkpoint of a run: its settings and what it is made with.
nlohmann::ordered_json about_run(const Options& options, const TrainOptions& train);
// The result that a run recorded, if it has nothing left to do: it made its iterations, or stopped by itself.
std::optional<nlohmann::ordered_json> finished_result(const std::filesystem::path& run, const FoundCheckpoint& found,
                                                      int64_t iterations);
// What is to be known before the run goes on. Its own records are right: else an error (DataError), not a training that
// ends without its report. Where it goes on with another device, or other vectors of the processor, and so with other
// rounding, it says that on standard error.
void check_resumed(const std::filesystem::path& run, const FoundCheckpoint& found, const TrainOptions& train);
// Records the result of a run that ended, and writes its report. Error: the folder cannot be written.
void finish_run(RunFolder& folder, const nlohmann::ordered_json& result);
// Writes the report of a run from what its folder holds. Errors: as read_run and report_input; it cannot be written.
void write_report(RunFolder& folder);

// What the report of `run`, read back as `trained`, is made of. Errors (DataError): metrics.jsonl.
ReportInput report_input(const Trained& trained, const std::filesystem::path& run);

}  // namespace cairn::copy_task
