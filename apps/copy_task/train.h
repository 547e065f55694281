#pragma once
// Training on the masked copy task, and runs that were trained.
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/training_run.h"
#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// The copy task for the training loop.
class CopyTask : public RunTask {
 public:
  // Starts from the weights of the run in `from`, or from random weights if it is empty. Error (DataError): the weights
  // are another model's.
  CopyTask(const Settings& settings, const DeviceAndDType& compute, const std::string& from = "");

  Model& model() override { return model_; }
  const TrainingOptions& options() const override { return settings_.training; }
  int64_t load(int64_t step) override;
  Variable loss(int64_t begin, int64_t end) override;
  Evaluation evaluate(int64_t step) override;
  nlohmann::ordered_json final_evaluation() override;
  std::string metrics_text(const nlohmann::ordered_json& result) const override;
  void write_report(RunFolder& run, const TrainState& state, const nlohmann::ordered_json& result) override;

 private:
  const Settings& settings_;
  DeviceAndDType compute_;
  Generator generator_;
  Model model_;
  Batch batch_;
};

// A saved run.
struct SavedRun : RunToRead {
  // After read():
  Settings settings;
  std::unique_ptr<Model> model;

  // Errors: as find().
  void read();
};

}  // namespace cairn::copy_task
