#pragma once
// A run as its folder holds it: the trained model, its figures, and the report that they make.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/report.h"
#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// The run that a command reads, as its newest good checkpoint holds it.
struct SavedRun {
  std::string folder;
  int64_t threads = 0;
  // Once it is read:
  Settings settings;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  // Declares --run and --threads.
  void fields(SettingFields& f, const std::string& help);
  // Errors: UsageError: none was named; DataError: there is none; its settings are none; its checkpoints are damaged.
  void read();
  // Evaluates with another variant from now on. Error (UsageError): not for these weights.
  void swap_attention(const std::string& spec);
  // Says where its variant computes full attention, unless `quiet`.
  void note_if_full(bool quiet) const;
};

// Gives the model the weights of the run that --init-from names. Errors (DataError): there is none; its checkpoints are
// damaged; weights of another model.
void initialize(Model& model, const std::filesystem::path& run);

// Figures as JSON, in which NaN is null, and as text: a line for a variant.
nlohmann::ordered_json as_json(const Metrics& metrics);
Metrics metrics_from(const nlohmann::ordered_json& json);
std::string metrics_text(const nlohmann::ordered_json& json);
// An object as rows of a report's table.
Report::Pairs pairs(const nlohmann::ordered_json& object);

}  // namespace cairn::copy_task
