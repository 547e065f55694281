#include "nn/layers.h"

#include <cmath>
#include <optional>

#include "autograd/ops.h"
#include "core/trace.h"

namespace cairn {

Linear::Linear(int64_t in, int64_t out, Generator& generator)
    : weight(uniform_parameter({out, in}, 1 / std::sqrt(double(in)), generator)),
      bias(uniform_parameter({out}, 1 / std::sqrt(double(in)), generator)) {}

// Error: x is not [..., features]; names the layer.
static void check_features(const char* layer, const Variable& x, int64_t features) {
  check(x.shape().rank() >= 1 && x.size(-1) == features, layer, ": expected [..., ", features, " features], got ",
        x.shape());
}

void check_sequences(const char* layer, const Variable& x, int64_t features) {
  check(x.shape().rank() == 3 && x.size(2) == features, layer, ": expected [batch, position, ", features,
        " features], got ", x.shape());
}

Variable Linear::operator()(const Variable& x, std::optional<Unary> activation) const {
  check_features("linear", x, weight.size(1));
  return linear(x, weight, bias, activation);
}

Embedding::Embedding(int64_t tokens, int64_t features, Generator& generator)
    : weight(normal_parameter({tokens, features}, generator)) {}

Variable Embedding::operator()(const Tensor& tokens) const { return gather_rows(weight, tokens); }

LayerNorm::LayerNorm(int64_t features)
    : weight(constant_parameter({features}, 1)), bias(constant_parameter({features}, 0)) {}

Variable LayerNorm::operator()(const Variable& x) const {
  check_features("layer_norm", x, weight.size(0));
  return layer_norm(x, weight, bias, epsilon);
}

FeedForward::FeedForward(int64_t features, int64_t hidden, Unary activation_, double dropout_, Generator& generator)
    : linear1(features, hidden, generator),
      linear2(hidden, features, generator),
      activation(activation_),
      dropout(dropout_) {}

Variable FeedForward::operator()(const Variable& x, const Context& context) const {
  const trace::Span span("feed forward", "module");
  check_features("feed_forward", x, linear1.weight.size(1));
  return linear2(apply_dropout(linear1(x, activation), dropout, context, Purpose::feed_forward_dropout));
}

Variable apply_dropout(const Variable& x, double p, const Context& context, Purpose purpose) {
  return context.training && p > 0 ? dropout(x, p, context.draw(purpose)) : x;
}

Variable mean_over_length(const Variable& x, const Tensor& lengths) {
  const Variable zero(Tensor::zeros({}, x.dtype(), x.device()));
  const Tensor inside = within(lengths, x.size(1)).reshape({x.size(0), x.size(1), 1});
  const Variable count(lengths.cast(x.dtype()).reshape({x.size(0), 1}));
  return divide_or_zero(sum(where(inside, x, zero), {1}), count);
}

double period_of(int64_t element, int64_t features) {
  return std::pow(10000.0, double(element - element % 2) / double(features));
}

Tensor sinusoidal_positions(int64_t n, int64_t features) {
  Tensor result({n, features});
  float* out = result.mutable_data<float>();
  for (int64_t p = 0; p < n; ++p)
    for (int64_t j = 0; j < features; ++j) {
      const double angle = double(p) / period_of(j, features);
      *out++ = float(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  return result;
}

Variable SinusoidalPositions::operator()(const Variable& x, int64_t first) const {
  const int64_t end = first + x.size(1);
  if (!table_.defined() || table_.size(0) < end || table_.size(1) != x.size(2) || table_.dtype() != x.dtype() ||
      table_.device() != x.device())
    table_ = sinusoidal_positions(end + end / 2, x.size(2)).to(x.device()).cast(x.dtype());
  return x + table_.slice(first, end);
}

}  // namespace cairn
