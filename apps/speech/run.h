#pragma once
// A saved run: the trained model and what belongs to it.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/training_run.h"
#include "apps/speech/corpus.h"
#include "apps/speech/model.h"
#include "apps/speech/settings.h"

namespace cairn::speech {

struct SavedRun : RunToRead {
  // After read():
  Settings settings;
  FrontEnd front_end;
  std::unique_ptr<Model> model;

  // Errors: as find() and read_front_end().
  void read();
};

// The run's FrontEnd.
inline constexpr const char* front_end_name = "front_end.json";
// Error (DataError): the file is missing or damaged.
FrontEnd read_front_end(const std::filesystem::path& run);

// The metrics as JSON, in which NaN is null; a result as a line of text.
nlohmann::ordered_json as_json(const Recognition& found);
std::string metrics_text(const nlohmann::ordered_json& json);

}  // namespace cairn::speech
