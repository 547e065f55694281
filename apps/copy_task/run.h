#pragma once
// A saved run: the trained model and its metrics.
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/training_run.h"
#include "apps/copy_task/model.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

struct SavedRun : RunToRead {
  // After read():
  Settings settings;
  std::unique_ptr<Model> model;

  // Errors: as find().
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
