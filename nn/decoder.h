#pragma once
// The transformer's decoder, and both halves together (Vaswani et al. 2017).
#include "nn/transformer.h"

namespace cairn {

// `attention` is that of the target to itself, which has to honor a causal mask.
struct DecoderOptions : TransformerOptions {
  std::string cross_attention = "full";  // of the target to the memory

  DecoderOptions() { attention = "full"; }
};

// How many positions of each batch element are valid: int32 [B]; undefined: all.
struct DecoderLengths {
  Tensor target, memory;
};

// Causal self attention, cross attention to a memory, feed forward; each with its residual sum and norm, as in
// EncoderLayer. Error (UsageError) of the constructor: a cross attention that has the queries for keys; of the call: a
// self attention that cannot honor a causal mask.
struct DecoderLayer : ResidualLayer {
  MultiHeadAttention self_attention, cross_attention;
  FeedForward feed_forward;
  LayerNorm norm1, norm2, norm3;
  uint32_t layers;  // of the decoder: how far the numbers of self and cross attention are apart

  DecoderLayer(const DecoderOptions& options, Generator& generator);
  void fields(Fields& f) override {
    f("self_attention", self_attention);
    f("cross_attention", cross_attention);
    f("feed_forward", feed_forward);
    f("norm1", norm1);
    f("norm2", norm2);
    f("norm3", norm3);
  }
  // x [B, N, features], memory [B, S, features] -> [B, N, features]. Draws under the number context.layer, the cross
  // attention under context.layer + layers.
  Variable operator()(const Variable& x, const Variable& memory, const DecoderLengths& lengths,
                      const Context& context) const;
};

struct Decoder : Module {
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  std::unique_ptr<LayerNorm> final_norm;

  Decoder(const DecoderOptions& options, Generator& generator);
  void fields(Fields& f) override {
    f("layers", layers);
    if (final_norm) f("final_norm", *final_norm);
  }
  // As a layer's. Of L layers, number i draws under context.layer + i and context.layer + L + i.
  Variable operator()(const Variable& x, const Variable& memory, const DecoderLengths& lengths,
                      const Context& context) const;

  // Another variant of cross attention in every layer (see MultiHeadAttention).
  void swap_cross_attention(const std::string& spec, const std::map<std::string, std::string>& defaults = {});
};

// From embedded sources to features of targets: what they mean to a vocabulary is the model's around it.
struct EncoderDecoder : Module {
  Encoder encoder;
  Decoder decoder;

  EncoderDecoder(const TransformerOptions& encoder_options, const DecoderOptions& decoder_options, Generator& generator)
      : encoder(encoder_options, generator), decoder(decoder_options, generator) {
    check<UsageError>(encoder_options.features() == decoder_options.features(),
                      "transformer: ", encoder_options.features(), " features of the encoder, ",
                      decoder_options.features(), " of the decoder");
  }
  void fields(Fields& f) override {
    f("encoder", encoder);
    f("decoder", decoder);
  }
  // source [B, S, features], target [B, N, features] -> [B, N, features]: position i of the result knows all of the
  // source and the target up to i. The decoder's numbers of layers begin behind the encoder's.
  Variable operator()(const Variable& source, const Variable& target, const Tensor& source_lengths,
                      const Tensor& target_lengths, const Context& context) const {
    return decode(target, encode(source, source_lengths, context), {target_lengths, source_lengths}, context);
  }
  // Its halves, for one memory and many targets, as when a sequence is written token by token.
  Variable encode(const Variable& source, const Tensor& lengths, const Context& context) const {
    return encoder(source, {lengths, lengths, {}, false}, context);
  }
  Variable decode(const Variable& target, const Variable& memory, const DecoderLengths& lengths,
                  const Context& context) const {
    return decoder(target, memory, lengths, context.at_layer(context.layer + uint32_t(encoder.layers.size())));
  }
};

}  // namespace cairn
