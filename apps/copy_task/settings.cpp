#include "apps/copy_task/settings.h"

#include <nlohmann/json.hpp>

#include "apps/common/model_options.h"

namespace cairn::copy_task {

void Settings::fields(SettingFields& f) {
  f("attention", model.attention, Text::variant, "attention variant (listed below)");
  f("length", length, {1, 1 << 20}, "symbols in each copy; a sequence 0w0w has 2 (length + 1) positions");
  fields_of_figure(f);
  f("init-from", init_from, Text::folder,
    "fine-tune: start from the weights of the run in this folder; the sizes of the models must agree");
  f.quick(quick_values(4000));
}

void Settings::fields_of_figure(SettingFields& f) {
  f("topk", topk, {1, 1 << 20}, "number of top keys, unless the variant says topk= (default: the variant's own)");
  f("batch", batch, {1, 1 << 20}, "sequences per step");
  model_fields(f, model);
  training.fields(f);
  training.fields_of_processes(f);
  f("stop-at", stop_at, {0, 1}, "stop when the masked accuracy of an evaluation reaches this; 0: never");
  f("quick", quick, "a small model that learns in one to two minutes; changes these defaults");
  compute.fields(f);
  f.withdrawn({{"also_evaluate", ""}, {"ordered", false}, {"plateau_metric", "loss"}});
}

nlohmann::ordered_json Settings::quick_values(int64_t iterations) {
  return {{"topk", 16},
          {"layers", 2},
          {"heads", 4},
          {"feed_forward", 512},
          {"lr", 1e-3},
          {"iterations", iterations},
          {"evaluate_every", 100},
          {"stop_at", 0.995}};
}

TransformerOptions Settings::transformer() const {
  TransformerOptions options = model;
  if (topk > 0) options.attention_defaults["topk"] = std::to_string(topk);
  return options;
}

void Settings::validate(Device device) const {
  validate_model(transformer(), device);
  training.validate();
}

}  // namespace cairn::copy_task
