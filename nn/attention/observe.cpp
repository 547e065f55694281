#include "nn/attention/observe.h"

namespace cairn {
namespace {

// [B, S, H, S]: row s of every head is the unit vector e_s.
Tensor identity_values(const Tensor& k) {
  const int64_t S = k.size(1);
  const Tensor position = arange(S, k.device());
  const Tensor identity = compare(Compare::equal, position.reshape({S, 1, 1}), position).cast(k.dtype());
  return broadcast_to(identity, {k.size(0), S, k.size(2), S});
}

// The output [B, N, H, S] for identity values, as weights: float32 [B, H, N, S].
Tensor as_weights(const Tensor& out) { return permute(out.cast(DType::float32), {0, 2, 1, 3}); }

}  // namespace

Tensor attention_weights(const Attention& attention, const Tensor& q, const Tensor& k, const AttentionMask& mask,
                         const AttentionContext& context) {
  const NoGrad no_grad;
  return as_weights(attention(q, k, identity_values(k), mask, context));
}

std::vector<Observation> observe(const std::vector<MultiHeadAttention*>& layers, const std::function<void()>& forward,
                                 bool with_weights) {
  struct Guard {
    const std::vector<MultiHeadAttention*>& layers;

    ~Guard() {
      for (MultiHeadAttention* layer : layers) layer->observation = nullptr;
    }
  } guard{layers};
  std::vector<Observation> seen(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) layers[i]->observation = &seen[i];
  forward();
  for (size_t i = 0; with_weights && i < layers.size(); ++i) {
    Observation& one = seen[i];
    const Attention& variant = *layers[i]->attention;
    const AttentionContext context{{}, &one.choices};  // the choices are made, so nothing is drawn
    one.weights = attention_weights(variant, one.q, one.k, one.mask, context);
    const AttentionOptions plain{.mask = one.mask, .scale = variant.scale()};
    one.full = as_weights(attention(one.q, one.k, identity_values(one.k), plain));
  }
  return seen;
}

}  // namespace cairn
