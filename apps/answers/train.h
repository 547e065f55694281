#pragma once
// Fine-tuning a pretrained BERT on questions, and runs that were trained.
#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/answers/model.h"
#include "apps/common/training.h"

namespace cairn::answers {

// Trains the run, or goes on with it, and returns its result. Errors: as Model(), read_questions() for the parts train
// and dev, and Training.
nlohmann::ordered_json train(const Run& run, const Settings& settings);

// Writes report.html: the training, and what the model does, which is on the CPU from then on. The result is null if
// the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const nlohmann::ordered_json& result,
                  const Settings& settings, size_t train_questions, const std::vector<Question>& dev, Model& model);

// A saved run. `option` names the folder in messages. Errors: as open_run(), Model() and ComputeSettings::apply();
// DataError: the weights are another model's.
struct SavedRun {
  std::string folder;
  Settings settings;
  std::unique_ptr<Model> model;

  SavedRun(const char* option, const std::string& folder, const ComputeSettings& compute);
};

}  // namespace cairn::answers
