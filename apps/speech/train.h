#pragma once
// Training a recognizer, and runs that were trained.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/training_run.h"
#include "apps/speech/model.h"
#include "apps/speech/settings.h"

namespace cairn::speech {

// Speech recognition for the training loop.
class SpeechTask : public RunTask {
 public:
  // Starts from the weights of the run in `from`, if it is not empty. Errors: as sentences_of() for the parts train and
  // dev, and as initialize(); DataError: that run has other phones or another number of filterbanks than the data.
  SpeechTask(const Settings& settings, const DeviceAndDType& compute, const Corpus& corpus,
             const std::string& from = "");

  Model& model() override { return model_; }
  const TrainingOptions& options() const override { return settings_.training; }
  Data data() override;
  int64_t load(int64_t step) override;
  Variable loss(int64_t begin, int64_t end) override;
  Evaluation evaluate(int64_t step) override;
  nlohmann::ordered_json final_evaluation() override;
  std::string metrics_text(const nlohmann::ordered_json& result) const override;
  void write_report(RunFolder& run, const TrainState& state, const nlohmann::ordered_json& result) override;

 private:
  const Settings& settings_;
  FrontEnd front_end_;
  std::vector<Sentence> train_, dev_;
  Epochs epochs_;
  Generator generator_;
  Model model_;
  Batch batch_;
  int64_t first_position_ = 0;
};

// The FrontEnd of a run, in the file of this name, with hashes of the data. Error (DataError): it is missing or
// damaged.
inline constexpr const char* front_end_name = "front_end.json";
FrontEnd read_front_end(const std::filesystem::path& run);

// A saved run.
struct SavedRun : RunToRead {
  std::optional<Device> device;  // none: as in ComputeSettings
  // After read():
  Settings settings;
  FrontEnd front_end;
  std::unique_ptr<Model> model;  // on the device; on a GPU with the precision of the training

  // Declares --run, --threads and --device.
  void fields(SettingFields& f);
  // Errors: as find(), read_front_end() and ComputeSettings::apply().
  void read();
};

}  // namespace cairn::speech
