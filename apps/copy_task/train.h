#pragma once
// Training on the masked copy task, and runs that were trained.
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/training.h"
#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// Trains the run, or goes on with it, and returns its result. Errors: as initialize() and Training.
nlohmann::ordered_json train(const Run& run, const Settings& settings, const DeviceAndDType& compute);

// Writes report.html: the training, and what the model does, which is on the CPU from then on. The result is null if
// the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const nlohmann::ordered_json& result,
                  const Settings& settings, Model& model);

// The settings, the model and the steps of the run in a folder, which `option` names. Errors: as open_run(); DataError:
// the weights are another model's.
struct SavedRun {
  Settings settings;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  SavedRun(const char* option, const std::string& folder);
};

}  // namespace cairn::copy_task
