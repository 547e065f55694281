#pragma once
// A run as its folder holds it: the trained model, its figures, and the report that they make.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/training_state.h"
#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// A run as its newest good checkpoint holds it.
struct Trained {
  Settings settings;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  // Evaluates with another variant. Error (UsageError): not for these weights.
  void swap_attention(const std::string& spec);
  // The variant of all layers, and the positions of a sequence.
  const Attention& attention() const { return *model->encoder.layers[0]->attention.attention; }
  int64_t positions() const { return model->positions.size(0); }
};

// Reads the run in the folder that `option` names. Errors (DataError): there is none; its settings are none; its
// checkpoints are damaged.
Trained read_run(const char* option, const std::filesystem::path& run);
// Gives the model the weights of the run that --init-from names. Error (DataError): as read_run; weights of another
// model.
void initialize(Model& model, const std::filesystem::path& run);

// Figures as JSON, in which NaN is null, and as text: a line for a variant.
nlohmann::ordered_json as_json(const Metrics& metrics);
Metrics metrics_from(const nlohmann::ordered_json& json);
std::string metrics_text(const nlohmann::ordered_json& json);

// The settings of a command that reads a run: --run and --threads.
struct RunSettings {
  std::string folder;
  int64_t threads = 0;
  void fields(SettingFields& f, const std::string& help);
  // Reads the run. Error (UsageError): none was named.
  Trained read() const;
};

}  // namespace cairn::copy_task
