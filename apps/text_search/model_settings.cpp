#include "apps/text_search/model_settings.h"

#include "core/error.h"

namespace cairn::text_search {

void expect_model(const std::string& model, const std::string& command) {
  check<UsageError>(!model.empty(), "expected --model with a model's folder; see text-search ", command, " --help");
}

void ModelSettings::model_field(SettingFields& f) { f("model", model, Text::folder, "the model's folder", Keep::no); }

void ModelSettings::fields(SettingFields& f, const std::string& batch_help) {
  f("batch", batch, {1, 4096}, batch_help);
  compute.fields(f);
}

EmbedderOptions ModelSettings::embedder_options(const char* command, const std::string& attention) const {
  expect_model(model, command);
  return {model, attention, batch, 0, uint64_t(compute.seed), compute.apply()};
}

}  // namespace cairn::text_search
