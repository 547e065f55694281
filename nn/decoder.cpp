#include "nn/decoder.h"

#include "core/trace.h"

namespace cairn {

static std::unique_ptr<Attention> make_cross_attention(const std::string& spec,
                                                       const std::map<std::string, std::string>& defaults) {
  auto attention = make_attention(spec, defaults);
  check<UsageError>(!attention->shares_keys(), "attention '", spec, "' has the queries for keys and so no cross ",
                    "attention");
  return attention;
}

DecoderLayer::DecoderLayer(const DecoderOptions& o, Generator& generator)
    : ResidualLayer(o),
      self_attention(o.features(), o.heads, o.head_size, o.attention_dropout,
                     make_attention(o.attention, o.attention_defaults), generator),
      cross_attention(o.features(), o.heads, o.head_size, o.attention_dropout,
                      make_cross_attention(o.cross_attention, o.attention_defaults), generator),
      feed_forward(o.features(), o.feed_forward, o.activation, o.dropout, generator),
      norm1(o.features()),
      norm2(o.features()),
      norm3(o.features()),
      layers(uint32_t(o.layers)) {}

Variable DecoderLayer::operator()(const Variable& x, const Variable& memory, const DecoderLengths& lengths,
                                  const Context& context) const {
  const AttentionMask to_itself{lengths.target, lengths.target, {}, true};
  const AttentionMask to_memory{lengths.target, lengths.memory, {}, false};
  const Context crossing = context.at_layer(context.layer + layers);
  const Variable y = residual(x, norm1, Purpose::attention_output_dropout, context,
                              [&](const Variable& z) { return self_attention(z, to_itself, context); });
  const Variable z = residual(y, norm2, Purpose::attention_output_dropout, crossing,
                              [&](const Variable& w) { return cross_attention(w, memory, to_memory, crossing); });
  return residual(z, norm3, Purpose::feed_forward_output_dropout, context,
                  [&](const Variable& w) { return feed_forward(w, context); });
}

Decoder::Decoder(const DecoderOptions& options, Generator& generator) {
  options.validate();
  for (int64_t i = 0; i < options.layers; ++i) layers.push_back(std::make_unique<DecoderLayer>(options, generator));
  if (options.final_norm) final_norm = std::make_unique<LayerNorm>(options.features());
}

Variable Decoder::operator()(const Variable& x, const Variable& memory, const DecoderLengths& lengths,
                             const Context& context) const {
  Variable y = x;
  for (size_t i = 0; i < layers.size(); ++i) {
    const trace::Span span("decoder layer", "module", i);
    y = (*layers[i])(y, memory, lengths, context.at_layer(context.layer + uint32_t(i)));
  }
  return final_norm ? (*final_norm)(y) : y;
}

void Decoder::swap_cross_attention(const std::string& spec, const std::map<std::string, std::string>& defaults) {
  for (auto& layer : layers) layer->cross_attention.swap_attention(make_cross_attention(spec, defaults));
}

}  // namespace cairn
