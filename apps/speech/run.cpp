#include "apps/speech/run.h"

#include <cmath>
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
  step = load_best(folder, *model, max_steps);
  if (step >= 0) return;
  const FoundCheckpoint newest = checkpoint_of("--run", folder);
  step = state_of(newest).step;
  restore(newest, *model, nullptr);
}

FrontEnd read_front_end(const std::filesystem::path& run) {
  const std::filesystem::path file = run / front_end_name;
  return front_end_from(read_json(file), file);
}

int64_t load_best(const std::filesystem::path& run, Model& model, int64_t last_step) {
  const auto best = newest_checkpoint(run / "best");
  if (!best || state_of(*best).step > last_step) return -1;
  restore(*best, model, nullptr);
  return state_of(*best).step;
}

Json as_json(const Metrics& metrics) {
  return {{"loss", finite_or_null(metrics.loss)}, {"phone_error_rate", finite_or_null(metrics.phone_error_rate)}};
}

std::string metrics_text(const Json& json) {
  const auto number = [&](const char* key) { return json.at(key).is_number() ? json.at(key).get<double>() : NAN; };
  return formatted("%-32s  loss %.4f  phone error rate %.2f%%\n", json.at("attention").get<std::string>().c_str(),
                   number("loss"), 100 * number("phone_error_rate"));
}

}  // namespace cairn::speech
