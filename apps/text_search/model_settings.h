#pragma once
// What the commands that embed texts have in common.
#include <cstdint>
#include <string>

#include "apps/common/command.h"
#include "apps/text_search/embedder.h"

namespace cairn::text_search {

// Error (UsageError): no --model was given.
void expect_model(const std::string& model, const std::string& command);

struct ModelSettings {
  std::string model;
  int64_t batch;
  ComputeSettings compute;

  // Declares --model.
  void model_field(SettingFields& f);
  // Declares --batch, and where and how precisely to compute: behind a command's own.
  void fields(SettingFields& f, const std::string& batch_help);
  // Errors: UsageError: no --model; as ComputeSettings::apply.
  EmbedderOptions embedder_options(const char* command, const std::string& attention = "full") const;
};

}  // namespace cairn::text_search
