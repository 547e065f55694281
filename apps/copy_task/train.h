#pragma once
// Training on the masked copy task.
#include <string>

#include "apps/common/training.h"
#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// The copy task for the training loop.
class CopyTask : public Task {
 public:
  // Starts from the weights of the run in `from`, or from random weights if it is empty. `explain` prints what the
  // plateau is when it begins. Error (DataError): the weights are another model's.
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

// Trains the run in the folder, or a new one, evaluates the trained model, and writes result.json and the report.
// Returns the result: metrics of the evaluation, steps, seconds, parameters, peak memory. For a finished run, it only
// writes the report again. With several processes, all return the result. Errors: as train(); Interrupted, after
// saving: there is no result, but a report of the training so far.
nlohmann::ordered_json train_run(CopyTask& task, Artifact& run, bool quiet, Communicator& ranks);
// Does this result say that nothing is left to do?
bool is_finished(const nlohmann::ordered_json& result, const Settings& settings);
// A result as text.
std::string result_text(const nlohmann::ordered_json& result);

}  // namespace cairn::copy_task
