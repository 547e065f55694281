#pragma once
// Training a recognizer.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/training_run.h"
#include "apps/speech/model.h"
#include "apps/speech/settings.h"

namespace cairn::speech {

// The training and the dev part of the prepared data, normalized. Errors (DataError): as read_corpus(); a part is
// empty; the labels of a sentence do not fit into its positions.
Corpus read_training_data(const Settings& settings);

// Speech recognition for the training loop.
class SpeechTask : public RunTask {
 public:
  // Starts from the weights of the run in `from`, if it is not empty. Errors: as initialize(); DataError: its phones
  // differ from those of the data.
  SpeechTask(const Settings& settings, const Place& place, Corpus data, const std::string& from = "");

  Model& model() override { return model_; }
  const TrainingOptions& options() const override { return settings_.training; }
  void begin(Artifact& run) override;
  int64_t load(int64_t step) override;
  Variable loss(int64_t begin, int64_t end) override;
  Evaluation evaluate(int64_t step) override;
  nlohmann::ordered_json judge() override;
  std::string metrics_text(const nlohmann::ordered_json& result) const override;
  void write_report(Artifact& run, const TrainState& state, const nlohmann::ordered_json& result) override;

 private:
  const Settings& settings_;
  Place place_;
  Corpus data_;
  std::vector<Sentence> dev_;  // as sequences
  Epochs epochs_;
  Generator generator_;
  Model model_;
  Batch batch_;
  int64_t first_position_ = 0;
};

}  // namespace cairn::speech
