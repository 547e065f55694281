#pragma once
// Training a recognizer, and runs that were trained.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/training.h"
#include "apps/speech/model.h"
#include "apps/speech/settings.h"

namespace cairn::speech {

// The parts dev and train of prepared data.
struct TrainingData {
  FrontEnd front_end;
  std::vector<Sentence> dev, train;

  // Errors: as sentences_of(); DataError: no sentence of a part has phones.
  TrainingData(Corpus corpus, const Settings& settings);
};

// Writes report.html: the training, and what the model does, which is on the CPU from then on. The result is null if
// the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  const TrainingData& data, Model& model);

// A saved run. The model is on the device (none: as in ComputeSettings), on a GPU with the precision of the training.
// `option` names the folder in messages. Errors: as open_run(), read_front_end() and ComputeSettings::apply().
struct SavedRun {
  std::string folder;
  Settings settings;
  FrontEnd front_end;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  SavedRun(const char* option, const std::string& folder, std::optional<Device> device);
};

}  // namespace cairn::speech
