#include "nn/attention/observe.h"

#include <memory>
#include <utility>

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

// Computes what the inner variant computes, and keeps an observation of it.
struct Observer : Attention {
  std::unique_ptr<Attention> inner;
  mutable Observation seen;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    seen = {q.value(), k.value(), v.value(), {}, {}, {}};
    AttentionContext reporting = context;
    reporting.report = &seen.choices;
    Variable out = (*inner)(q, k, v, mask, reporting);
    if (context.report) *context.report = seen.choices;

    // A second call draws the same numbers, so it makes the same choices. The observed weights are without dropout.
    AttentionContext again = context;
    again.report = nullptr;
    again.dropout = 0;
    seen.weights = attention_weights(*inner, seen.q, seen.k, mask, again);
    const AttentionOptions plain{.mask = mask, .scale = inner->scale()};
    seen.full = as_weights(attention(seen.q, seen.k, identity_values(seen.k), plain).out);
    return out;
  }
  bool shares_keys() const override { return inner->shares_keys(); }
  double flops(const AttentionWork& work) const override { return inner->flops(work); }
  void fields(Fields& f) override { inner->fields(f); }
};

}  // namespace

Tensor attention_weights(const Attention& attention, const Tensor& q, const Tensor& k, const AttentionMask& mask,
                         const AttentionContext& context) {
  const NoGrad no_grad;
  return as_weights(attention(Variable(q), Variable(k), Variable(identity_values(k)), mask, context).value());
}

std::vector<Observation> observe(const std::vector<MultiHeadAttention*>& layers, const std::function<void()>& forward) {
  struct Guard {
    const std::vector<MultiHeadAttention*>& layers;
    std::vector<Observer*> observers;

    explicit Guard(const std::vector<MultiHeadAttention*>& all) : layers(all) {
      for (MultiHeadAttention* layer : layers) {
        auto observer = std::make_unique<Observer>();
        observers.push_back(observer.get());
        observer->inner = std::move(layer->attention);
        layer->attention = std::move(observer);
      }
    }
    ~Guard() {
      for (size_t i = 0; i < observers.size(); ++i) {
        auto inner = std::move(observers[i]->inner);
        layers[i]->attention = std::move(inner);
      }
    }
  } guard(layers);
  forward();
  std::vector<Observation> seen;
  for (Observer* observer : guard.observers) seen.push_back(std::move(observer->seen));
  return seen;
}

}  // namespace cairn
