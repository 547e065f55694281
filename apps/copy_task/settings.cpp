#include "apps/copy_task/settings.h"

#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "core/kernels/memory.h"
#include "core/storage.h"
#include "nn/attention/attention.h"

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
  f("layers", model.layers, {1, 1024}, "encoder layers");
  f("heads", model.heads, {1, 1024}, "attention heads");
  f("head-size", model.head_size, {1, 4096}, "features per head");
  f("feed-forward", model.feed_forward, {1, 1 << 20}, "hidden features of the feed-forward block");
  f("dropout", model.dropout, {0, 1}, "dropout of block outputs and hidden features");
  f("attention-dropout", model.attention_dropout, {0, 1}, "dropout of attention weights");
  f("norm", model.norm, {{"post", Norm::post}, {"pre", Norm::pre}},
    "layer norm after each residual sum (post) or before each block (pre)");
  f("activation", model.activation, {{"gelu", Activation::gelu}, {"relu", Activation::relu}},
    "gelu or relu, in the feed-forward block");
  training.fields(f);
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
  const TransformerOptions options = transformer();
  options.validate();
  name_in_errors("--attention", [&] { make_attention(options.attention, options.attention_defaults); });
  training.validate();
  // Each parameter has a gradient and two moments.
  const double f = double(options.features()), hidden = double(options.feed_forward);
  const double bytes = 4 * sizeof(float) * double(options.layers) * (4 * f * f + 2 * f * hidden);
  const double available = double(available_memory(device));
  check<DeviceError>(bytes <= available, "out of memory on ", name(device),
                     ": the parameters, their gradients and moments need ", formatted("%.1f GB", bytes / 1e9), ", but ",
                     device == Device::cpu ? "this process may use " : "the free memory is ",
                     formatted("%.1f GB", available / 1e9),
                     "; reduce --layers, --heads, --head-size or --feed-forward");
}

}  // namespace cairn::copy_task
