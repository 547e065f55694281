#pragma once
// Training on the masked copy task.
#include <string>

#include "apps/common/training.h"
#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// The copy task as the training loop sees it.
class CopyTask : public Task {
 public:
  // With the weights of the run in `from`; without a name, random ones. `explain` describes the plateau where it comes.
  // Error (DataError): the weights are another model's.
  CopyTask(const Settings& settings, const Place& place, const std::string& from, bool explain);

  Model& model() override { return model_; }
  int64_t load(int64_t step) override;
  Variable loss(int64_t begin, int64_t end) override;
  Evaluation evaluate(int64_t step) override;
  const Settings& settings() const { return settings_; }
  Device device() const { return place_.device; }

 private:
  const Settings& settings_;
  Place place_;
  Generator generator_;
  Model model_;
  Batch batch_;
  bool explain_;
};

// Trains the run that the folder holds, or a new one, evaluates the trained model, and writes result.json and the
// report. Returns the result: figures of the evaluation, steps, seconds, parameters, peak memory. A run that was
// finished before returns its result, and its report is written again. With several processes all return it. Errors: as
// train(); Interrupted, after saving: there is no result, but a report of what there is.
nlohmann::ordered_json train_run(CopyTask& task, Artifact& run, bool quiet, Communicator& ranks);
// Is this the result of a run that has nothing left to do?
bool is_finished(const nlohmann::ordered_json& result, const Settings& settings);
// What a result tells.
std::string result_text(const nlohmann::ordered_json& result);

}  // namespace cairn::copy_task
