#include "apps/copy_task/settings.h"

#include <nlohmann/json.hpp>

#include "apps/common/variants.h"

namespace cairn::copy_task {

void Settings::fields(SettingFields& f) {
  f("attention", model.attention, one_variant, "attention variant (listed below)");
  f("length", length, {1, 1 << 20}, "symbols in each copy; a sequence 0w0w has 2 (length + 1) positions");
  f("causal", causal, "mask all of the second copy, and let no position see a later one");
  f("from-other", from_other,
    "answer the second copy, which attends to the first alone (cross attention), not to itself");
  fields_of_figure(f);
  f("init-from", init_from, Text::folder,
    "fine-tune: start from the weights of the run in this folder; the sizes of the models must agree");
  f.quick(quick_values(4000));
}

void Settings::fields_of_figure(SettingFields& f) {
  f("topk", topk, {0, 1 << 20}, "number of top keys, unless the variant says topk=; 0: the variant's default");
  f("sequences", sequences, {1, 1 << 20}, "fresh sequences that the trained model is evaluated on");
  f("batch", batch, {1, 1 << 20}, "sequences per step");
  model_fields(f, model);
  training.fields(f);
  f("average-every", training.average_every, {0, max_steps},
    "with several processes (mpirun): each trains alone on its part of every batch, and their weights are averaged "
    "every N steps; 0: gradients are summed in every step. --iterations, --evaluate-every and --checkpoint-every must "
    "be multiples of N");
  f("stop-at", stop_at, {0, 1}, "stop when the masked accuracy of an evaluation reaches this; 0: never");
  f("quick", quick, "a small model that learns in one to five minutes; changes these defaults");
  compute.fields(f);
}

Json Settings::quick_values(int64_t iterations) {
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

}  // namespace cairn::copy_task
