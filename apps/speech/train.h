#pragma once
// Training a recognizer, and runs that were trained.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/training.h"
#include "apps/speech/model.h"
#include "apps/speech/settings.h"

namespace cairn::speech {

// Trains the run, or goes on with it, and returns its result. Errors: as sentences_of() for the parts train and dev,
// initialize() and Training; DataError: --init-from has other phones or another number of filterbanks than the data.
nlohmann::ordered_json train(const Run& run, const Settings& settings, const DeviceAndDType& compute);

// The parts dev and train of prepared data.
struct TrainingData {
  FrontEnd front_end;
  std::vector<Sentence> dev, train;

  // Errors: as sentences_of(); DataError: no sentence of a part has phones.
  TrainingData(Corpus corpus, const Settings& settings);
};

// Writes report.html: the training, and what the model does, which is on the CPU from then on. The result is null if
// the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const nlohmann::ordered_json& result,
                  const Settings& settings, const TrainingData& data, Model& model);

// The FrontEnd of a run, in the file of this name, with hashes of the data. Error (DataError): it is missing or
// damaged.
inline constexpr const char* front_end_name = "front_end.json";
FrontEnd read_front_end(const std::filesystem::path& run);

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
