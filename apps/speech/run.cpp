#include "apps/speech/run.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "nn/io/json.h"

namespace cairn::speech {

using Json = nlohmann::ordered_json;

void SavedRun::read() {
  SettingFields fields;
  settings.fields(fields);
  const FoundCheckpoint checkpoint = find(fields);
  front_end = read_front_end(folder);
  Generator generator(uint64_t(settings.compute.seed));
  model = std::make_unique<Model>(settings, front_end.classes(), generator);
  restore(checkpoint, *model, nullptr);
}

FrontEnd read_front_end(const std::filesystem::path& run) {
  const std::filesystem::path file = run / front_end_name;
  return front_end_from(read_json(file), file);
}

Json as_json(const Recognition& found) {
  return {{"loss", finite_or_null(found.loss)}, {"phone_error_rate", finite_or_null(found.phone_error_rate)}};
}

std::string metrics_text(const Json& json) {
  return formatted("%-32s  loss %.4f  phone error rate %.2f%%\n", json.at("attention").get<std::string>().c_str(),
                   number_or_nan(json.at("loss")), 100 * number_or_nan(json.at("phone_error_rate")));
}

}  // namespace cairn::speech
