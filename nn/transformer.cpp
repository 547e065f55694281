#include "nn/transformer.h"

#include "autograd/ops.h"
#include "core/trace.h"

namespace cairn {

// Error (UsageError): a size below 1, a dropout probability outside [0, 1].
static void check_options(const TransformerOptions& options) {
  const auto at_least_one = [](const char* what, int64_t value) {
    check<UsageError>(value >= 1, "transformer: ", what, " = ", value, ", expected at least 1");
  };
  at_least_one("layers", options.layers);
  at_least_one("heads", options.heads);
  at_least_one("head_size", options.head_size);
  at_least_one("feed_forward", options.feed_forward);
  for (double p : {options.dropout, options.attention_dropout})
    check<UsageError>(p >= 0 && p <= 1, "transformer: expected a dropout probability, got ", p);
}

double training_bytes(const TransformerOptions& options) {
  const double f = double(options.features()), hidden = double(options.feed_forward);
  return 4 * sizeof(float) * double(options.layers) * (4 * f * f + 2 * f * hidden);
}

Variable ResidualLayer::residual(const Variable& x, const LayerNorm& normalize, Purpose purpose, const Context& context,
                                 const std::function<Variable(const Variable&)>& block) const {
  const Variable z = block(norm == Norm::post ? x : normalize(x));
  const bool drops = context.training && dropout > 0;
  const Variable y = drops ? dropout_add(z, dropout, context.draw(purpose), x) : x + z;
  return norm == Norm::post ? normalize(y) : y;
}

EncoderLayer::EncoderLayer(const TransformerOptions& o, Generator& generator)
    : ResidualLayer(o),
      attention(o.features(), o.heads, o.head_size, o.attention_dropout,
                make_attention(o.attention, o.attention_defaults), generator),
      feed_forward(o.features(), o.feed_forward, o.activation, o.dropout, generator),
      norm1(o.features()),
      norm2(o.features()) {}

Variable EncoderLayer::operator()(const Variable& x, const AttentionMask& mask, const Context& context,
                                  const Variable& memory) const {
  const Variable y = residual(x, norm1, Purpose::attention_output_dropout, context, [&](const Variable& z) {
    return attention(z, memory.defined() ? memory : z, mask, context);
  });
  return residual(y, norm2, Purpose::feed_forward_output_dropout, context,
                  [&](const Variable& z) { return feed_forward(z, context); });
}

static void check_crosses(const Attention& attention) {
  check<UsageError>(!attention.shares_keys(), "attention '", attention.spec(),
                    "' uses the queries as keys, so it has no cross attention");
}

Encoder::Encoder(const TransformerOptions& options, Generator& generator) {
  check_options(options);
  for (int64_t i = 0; i < options.layers; ++i) layers.push_back(std::make_unique<EncoderLayer>(options, generator));
  if (options.final_norm) final_norm = std::make_unique<LayerNorm>(options.features());
}

Variable Encoder::operator()(const Variable& x, const AttentionMask& mask, const Context& context,
                             const Variable& memory) const {
  check_sequences("encoder", x, layers.front()->norm1.weight.size(0));
  if (memory.defined()) {
    check_sequences("encoder: memory", memory, layers.front()->norm1.weight.size(0));
    check_crosses(*layers.front()->attention.attention);
  }
  Variable y = x;
  for (size_t i = 0; i < layers.size(); ++i) {
    const trace::Span span("encoder layer", "module", i);
    y = (*layers[i])(y, mask, context.at_layer(context.layer + uint32_t(i)), memory);
  }
  return final_norm ? (*final_norm)(y) : y;
}

std::vector<MultiHeadAttention*> Encoder::attentions() {
  std::vector<MultiHeadAttention*> all;
  for (auto& layer : layers) all.push_back(&layer->attention);
  return all;
}

void Encoder::swap_attention(const std::string& spec, const std::map<std::string, std::string>& defaults) {
  for (MultiHeadAttention* attention : attentions()) attention->swap_attention(make_attention(spec, defaults));
}

static std::unique_ptr<Attention> make_cross_attention(const DecoderOptions& options) {
  auto attention = make_attention(options.cross_attention, options.attention_defaults);
  check_crosses(*attention);
  return attention;
}

DecoderLayer::DecoderLayer(const DecoderOptions& o, Generator& generator)
    : ResidualLayer(o),
      self_attention(o.features(), o.heads, o.head_size, o.attention_dropout,
                     make_attention(o.attention, o.attention_defaults), generator),
      cross_attention(o.features(), o.heads, o.head_size, o.attention_dropout, make_cross_attention(o), generator),
      feed_forward(o.features(), o.feed_forward, o.activation, o.dropout, generator),
      norm1(o.features()),
      norm2(o.features()),
      norm3(o.features()) {}

Variable DecoderLayer::operator()(const Variable& x, const Variable& memory, const AttentionMask& mask,
                                  const Context& context) const {
  check_sequences("decoder_layer", x, norm1.weight.size(0));
  check_sequences("decoder_layer: memory", memory, norm1.weight.size(0));
  const AttentionMask causal{.query_lengths = mask.query_lengths, .key_lengths = mask.query_lengths, .causal = true};
  const Context crossing = context.at_layer(context.layer + 1);
  const Variable y = residual(x, norm1, Purpose::attention_output_dropout, context,
                              [&](const Variable& z) { return self_attention(z, causal, context); });
  const Variable z = residual(y, norm2, Purpose::attention_output_dropout, crossing,
                              [&](const Variable& w) { return cross_attention(w, memory, mask, crossing); });
  return residual(z, norm3, Purpose::feed_forward_output_dropout, context,
                  [&](const Variable& w) { return feed_forward(w, context); });
}

}  // namespace cairn
