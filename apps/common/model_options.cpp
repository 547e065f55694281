#include "apps/common/model_options.h"

#include "apps/common/format.h"
#include "core/kernels/memory.h"
#include "core/storage.h"
#include "nn/attention/attention.h"

namespace cairn {

void model_fields(SettingFields& f, TransformerOptions& model) {
  f("layers", model.layers, {1, 1024}, "encoder layers");
  f("heads", model.heads, {1, 1024}, "attention heads");
  f("head-size", model.head_size, {1, 4096}, "features per head");
  f("feed-forward", model.feed_forward, {1, 1 << 20}, "hidden features of the feed-forward block");
  f("dropout", model.dropout, {0, 1}, "dropout of block outputs and hidden features");
  f("attention-dropout", model.attention_dropout, {0, 1}, "dropout of attention weights");
  f("norm", model.norm, {{"post", Norm::post}, {"pre", Norm::pre}},
    "layer norm after each residual sum (post) or before each block (pre)");
  f("activation", model.activation, {{"gelu", Unary::gelu}, {"relu", Unary::relu}},
    "gelu or relu, in the feed-forward block");
}

void validate_model(const TransformerOptions& model, Device device) {
  model.validate();
  name_in_errors("--attention", [&] { make_attention(model.attention, model.attention_defaults); });
  // Each parameter has a gradient and two moments.
  const double f = double(model.features()), hidden = double(model.feed_forward);
  const double bytes = 4 * sizeof(float) * double(model.layers) * (4 * f * f + 2 * f * hidden);
  const double available = double(available_memory(device));
  check<DeviceError>(bytes <= available, "out of memory on ", name(device),
                     ": the parameters, their gradients and moments need ", formatted("%.1f GB", bytes / 1e9), ", but ",
                     device == Device::cpu ? "this process may use " : "the free memory is ",
                     formatted("%.1f GB", available / 1e9),
                     "; reduce --layers, --heads, --head-size or --feed-forward");
}

}  // namespace cairn
