#include "apps/speech/run.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/artifact.h"
#include "apps/common/format.h"
#include "apps/common/training_state.h"
#include "core/parallel.h"
#include "nn/io/json.h"

namespace cairn::speech {

using Json = nlohmann::ordered_json;

void SavedRun::fields(SettingFields& f) {
  f("run", folder, Text::folder, "the run's folder", Keep::no);
  threads_field(f, threads);
}

void SavedRun::read() {
  check<UsageError>(!folder.empty(), "expected --run with the folder of a run");
  if (threads > 0) set_threads(int(threads));
  SettingFields fields;
  settings.fields(fields);
  read_run(fields, "--run", folder);
  front_end = read_front_end(folder);
  Generator generator(uint64_t(settings.compute.seed));
  model = std::make_unique<Model>(settings, front_end.classes(), generator);
  const FoundCheckpoint checkpoint = checkpoint_of("--run", folder);
  step = state_of(checkpoint).step;
  restore(checkpoint, *model, nullptr);
}

FrontEnd read_front_end(const std::filesystem::path& run) {
  const std::filesystem::path file = run / front_end_name;
  return front_end_from(read_json(file), file);
}

Json as_json(const Metrics& metrics) {
  return {{"loss", finite_or_null(metrics.loss)}, {"phone_error_rate", finite_or_null(metrics.phone_error_rate)}};
}

std::string metrics_text(const Json& json) {
  return formatted("%-32s  loss %.4f  phone error rate %.2f%%\n", json.at("attention").get<std::string>().c_str(),
                   number_or_nan(json.at("loss")), 100 * number_or_nan(json.at("phone_error_rate")));
}

}  // namespace cairn::speech
