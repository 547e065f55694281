#pragma once
// A saved run: the trained model and what belongs to it.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/speech/corpus.h"
#include "apps/speech/model.h"
#include "apps/speech/settings.h"

namespace cairn::speech {

// The run that a command reads, from the checkpoint of its best model, or else the newest.
struct SavedRun {
  std::string folder;
  int64_t threads = 0;
  // After read():
  Settings settings;
  FrontEnd front_end;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  // Declares --run and --threads.
  void fields(SettingFields& f);
  // Errors: UsageError: --run is missing; DataError: there is no run; its settings or checkpoints are damaged.
  void read();
};

// The run's FrontEnd.
inline constexpr const char* front_end_name = "front_end.json";
// Error (DataError): the file is missing or damaged.
FrontEnd read_front_end(const std::filesystem::path& run);

// Metrics to JSON, in which NaN is null; a result as a line of text.
nlohmann::ordered_json as_json(const Metrics& metrics);
std::string metrics_text(const nlohmann::ordered_json& json);

}  // namespace cairn::speech
