#pragma once
// Training a recognizer.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/training.h"
#include "apps/speech/model.h"
#include "apps/speech/settings.h"

namespace cairn::speech {

// The training and the dev part of the prepared data, normalized. Errors (DataError): as read_corpus(); a part is
// empty; the labels of a sentence do not fit into its positions.
Corpus read_training_data(const Settings& settings);
// Error (DataError): the run in the folder, if there is one, was begun with other data than those of `file`. They would
// give other bits, and the labels would stand for other phones.
void check_same_data(const std::filesystem::path& run, const Corpus& data, const std::string& file);

// Speech recognition for the training loop.
class SpeechTask : public Task {
 public:
  // Starts from the weights of the run in `from`, if it is not empty. Errors: as initialize(); DataError: its phones
  // differ from those of the data.
  SpeechTask(const Settings& settings, const Place& place, const Corpus& data, const std::string& from);

  Model& model() override { return model_; }
  int64_t load(int64_t step) override;
  Variable loss(int64_t begin, int64_t end) override;
  Evaluation evaluate(int64_t step) override;
  // Of the dev part, as sequences.
  Recognition recognize_dev(bool may_stop) const { return recognize(model_, dev_, settings_, may_stop); }
  const Settings& settings() const { return settings_; }
  const Corpus& data() const { return data_; }
  Device device() const { return place_.device; }

 private:
  const Settings& settings_;
  Place place_;
  const Corpus& data_;
  std::vector<Sentence> dev_;
  Epochs epochs_;
  Generator generator_;
  Model model_;
  Batch batch_;
  int64_t first_position_ = 0;
};

// Trains the run in the folder, or a new one. Then takes the best model on dev, evaluates it there, and writes
// result.json and the report. Returns the result. For a finished run, it only writes the report again. Errors: as
// train(); Interrupted, after saving: there is no result, but a report.
nlohmann::ordered_json train_run(SpeechTask& task, Artifact& run, bool quiet, Communicator& ranks);
// Which model a result is of: "best model, of step 100", or "last model" if no checkpoint of it was kept.
std::string chosen_model(const nlohmann::ordered_json& result);
// A result as text.
std::string result_text(const nlohmann::ordered_json& result);

}  // namespace cairn::speech
