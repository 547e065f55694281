#pragma once
// Training on the masked copy task, and runs that were trained.

#include "apps/common/training_run.h"
#include "apps/copy_task/model.h"

namespace cairn::copy_task {

// Trains the run, or goes on with it, and returns its result. Errors: as initialize() and Training.
Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute);

// Writes report.html: the training, and what the model does, which is on the CPU from then on. The result is null if
// the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings, Model& model);

using SavedRun = cairn::SavedRun<Settings, Model>;

}  // namespace cairn::copy_task
