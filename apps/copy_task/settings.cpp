#include "apps/copy_task/settings.h"

#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "core/kernels/memory.h"
#include "core/storage.h"
#include "nn/attention/attention.h"

namespace cairn::copy_task {

void Settings::fields(SettingFields& f) {
  f("attention", model.attention, Text::variant, "attention variant (listed below)");
  f("length", length, {1, 1 << 20}, "symbols in w; a sequence has 2 (length + 1)");
  fields_of_figure(f);
  f("init-from", init_from, Text::folder,
    "start from the weights of the run in this folder, of a model of the same sizes (fine-tuning)");
  f.quick(quick_values(4000));
}

void Settings::fields_of_figure(SettingFields& f) {
  f("topk", topk, {1, 1 << 20}, "top keys of a variant that says none; by default what the list below says");
  f("batch", batch, {1, 1 << 20}, "sequences a step");
  f("layers", model.layers, {1, 1024}, "encoder layers");
  f("heads", model.heads, {1, 1024}, "attention heads");
  f("head-size", model.head_size, {1, 4096}, "features of a head");
  f("feed-forward", model.feed_forward, {1, 1 << 20}, "hidden features of the feed forward");
  f("dropout", model.dropout, {0, 1}, "dropout of block outputs and hidden features");
  f("attention-dropout", model.attention_dropout, {0, 1}, "dropout of attention weights");
  f("norm", model.norm, {{"post", Norm::post}, {"pre", Norm::pre}},
    "layer norm behind each residual sum or before each block");
  f("activation", model.activation, {{"gelu", Activation::gelu}, {"relu", Activation::relu}}, "of the feed forward");
  training.fields(f);
  f("stop-at", stop_at, {0, 1}, "end when masked accuracy in such an evaluation reaches this; 0: never");
  f("quick", quick, "a small model that learns in about a minute, where nothing else is asked for");
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
                     ": the parameters, their gradients and moments need ", formatted("%.1f GB", bytes / 1e9), ", ",
                     device == Device::cpu ? "this process may have " : "the device has free ",
                     formatted("%.1f GB", available / 1e9),
                     "; reduce --layers, --heads, --head-size or --feed-forward");
}

}  // namespace cairn::copy_task
