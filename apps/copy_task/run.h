#pragma once
// A saved run: the trained model and its metrics.
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// The run that a command reads, from its newest good checkpoint.
struct SavedRun {
  std::string folder;
  int64_t threads = 0;
  // After read():
  Settings settings;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  // Declares --run and --threads.
  void fields(SettingFields& f, const std::string& help);
  // Errors: UsageError: --run is missing; DataError: there is no run; its settings or checkpoints are damaged.
  void read();
  // Gives the model another attention variant. Error (UsageError): it does not fit these weights.
  void swap_attention(const std::string& spec);
  // Prints full_attention_note(), if there is one, unless `quiet`.
  void note_if_full(bool quiet) const;
};

// Metrics to JSON, in which NaN is null; a result as a line of text.
nlohmann::ordered_json as_json(const Metrics& metrics);
std::string metrics_text(const nlohmann::ordered_json& json);

}  // namespace cairn::copy_task
