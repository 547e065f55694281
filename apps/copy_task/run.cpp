#include "apps/copy_task/run.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/artifact.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/training_state.h"
#include "core/parallel.h"

namespace cairn::copy_task {

using Json = nlohmann::ordered_json;

void SavedRun::fields(SettingFields& f, const std::string& help) {
  f("run", folder, Text::folder, help, Keep::no);
  threads_field(f, threads);
}

void SavedRun::read() {
  check<UsageError>(!folder.empty(), "expected --run with the folder of a run");
  if (threads > 0) set_threads(int(threads));
  SettingFields fields;
  settings.fields(fields);
  read_run(fields, "--run", folder);
  const FoundCheckpoint checkpoint = checkpoint_of("--run", folder);
  step = state_of(checkpoint).step;
  Generator generator(uint64_t(settings.compute.seed));
  model = std::make_unique<Model>(settings.transformer(), sequence_length(settings.length), generator);
  restore(checkpoint, *model, nullptr);
}

void SavedRun::swap_attention(const std::string& spec) {
  model->encoder.swap_attention(spec, settings.transformer().attention_defaults);
}

void SavedRun::note_if_full(bool quiet) const {
  const int64_t n = model->positions.size(0);
  cairn::note_if_full(*model->encoder.layers[0]->attention.attention, n, n, quiet);
}

Json as_json(const Metrics& metrics) {
  return {{"loss", finite_or_null(metrics.loss)},
          {"accuracy", finite_or_null(metrics.accuracy)},
          {"masked_accuracy", finite_or_null(metrics.masked_accuracy)}};
}

Metrics metrics_from(const Json& json) {
  const auto value = [&](const char* key) { return json.at(key).is_null() ? NAN : json.at(key).get<double>(); };
  return {value("loss"), value("accuracy"), value("masked_accuracy")};
}

std::string metrics_text(const Json& json) {
  const auto figure = [&](const char* key) {
    return json.at(key).is_number() ? formatted("%.4f", json.at(key).get<double>()) : "-";
  };
  return formatted("%-32s  loss %s  accuracy %s  masked accuracy %s\n", json.at("attention").get<std::string>().c_str(),
                   figure("loss").c_str(), figure("accuracy").c_str(), figure("masked_accuracy").c_str());
}

}  // namespace cairn::copy_task
