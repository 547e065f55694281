#include "nn/bert.h"

#include "autograd/ops.h"
#include "core/trace.h"

namespace cairn {

Bert::Bert(const BertOptions& o, Generator& generator)
    : options(o),
      words(o.vocabulary, o.features(), generator),
      positions(o.positions, o.features(), generator),
      types(o.types, o.features(), generator),
      norm(o.features()),
      encoder(o, generator) {
  norm.epsilon = o.epsilon;
  for (auto& layer : encoder.layers) layer->norm1.epsilon = layer->norm2.epsilon = o.epsilon;
}

void Bert::fields(Fields& f) {
  f("embeddings.word_embeddings", words);
  f("embeddings.position_embeddings", positions);
  f("embeddings.token_type_embeddings", types);
  f("embeddings.LayerNorm", norm);
  for (size_t i = 0; i < encoder.layers.size(); ++i) {
    const std::string layer = "encoder.layer." + std::to_string(i);
    EncoderLayer& each = *encoder.layers[i];
    f(layer + ".attention.self.query", each.attention.query);
    f(layer + ".attention.self.key", *each.attention.key);
    f(layer + ".attention.self.value", each.attention.value);
    f(layer + ".attention.output.dense", each.attention.out);
    f(layer + ".attention.output.LayerNorm", each.norm1);
    f(layer + ".intermediate.dense", each.feed_forward.linear1);
    f(layer + ".output.dense", each.feed_forward.linear2);
    f(layer + ".output.LayerNorm", each.norm2);
  }
}

Variable Bert::operator()(const Tensor& tokens, const Tensor& lengths, const Context& context) const {
  const trace::Span span("bert", "module");
  const int64_t n = tokens.size(1);
  check<UsageError>(n <= options.positions, "bert: a sequence of ", n, " tokens; the model has ", options.positions,
                    " positions");
  const Variable position = positions(arange(n, tokens.device()));
  const Variable type = types(Tensor::zeros({1}, DType::int32, tokens.device()));
  const Variable x = norm(cast(words(tokens) + (position + type), activations));
  return encoder(x, AttentionMask::padded(lengths), context);
}

}  // namespace cairn
