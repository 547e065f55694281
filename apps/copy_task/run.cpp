#include "apps/copy_task/run.h"

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

std::string metrics_text(const Json& json) {
  return formatted("%-32s  loss %.4f  accuracy %.4f  masked accuracy %.4f\n",
                   json.at("attention").get<std::string>().c_str(), number_or_nan(json.at("loss")),
                   number_or_nan(json.at("accuracy")), number_or_nan(json.at("masked_accuracy")));
}

}  // namespace cairn::copy_task
