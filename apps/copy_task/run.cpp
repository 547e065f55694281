#include "apps/copy_task/run.h"

#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/program.h"

namespace cairn::copy_task {

using Json = nlohmann::ordered_json;

void SavedRun::read() {
  SettingFields fields;
  settings.fields(fields);
  const FoundCheckpoint checkpoint = find(fields);
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
  const Json& masked = json.at("masked_accuracy");  // null if nothing is masked
  return formatted("%-32s  loss %.4f  accuracy %.4f  masked accuracy %s\n",
                   json.at("attention").get<std::string>().c_str(), number_or_nan(json.at("loss")),
                   number_or_nan(json.at("accuracy")),
                   masked.is_null() ? "-" : formatted("%.4f", masked.get<double>()).c_str());
}

}  // namespace cairn::copy_task
