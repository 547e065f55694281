#pragma once
// The transformer's encoder (Vaswani et al. 2017).
#include <map>

#include "nn/attention/multi_head.h"

namespace cairn {

// Where layer normalisation stands: behind each residual sum (the paper's time), or before each block.
enum class Norm { post, pre };

struct TransformerOptions {
  int64_t layers = 4, heads = 6, head_size = 32, feed_forward = 768;
  std::string attention = "i-clustered-15";
  std::map<std::string, std::string> attention_defaults;  // for options that the specification leaves open
  double dropout = 0;                                     // of each block's output and the feed forward's hidden layer
  double attention_dropout = 0;                           // of attention weights
  Norm norm = Norm::post;
  Activation activation = Activation::gelu;
  bool final_norm = false;

  int64_t features() const { return heads * head_size; }
  // Error (UsageError): a size below 1, a probability outside [0, 1].
  void validate() const;
};

// post: norm1(x + dropout(attention(x))), then norm2(x + dropout(feed_forward(x))).
// pre: x + dropout(attention(norm1(x))), then x + dropout(feed_forward(norm2(x))).
struct EncoderLayer : Module {
  MultiHeadAttention attention;
  FeedForward feed_forward;
  LayerNormalisation norm1, norm2;
  Norm norm;
  double dropout;

  EncoderLayer(const TransformerOptions& options, Generator& generator);
  void fields(Fields& f) override {
    f("attention", attention);
    f("feed_forward", feed_forward);
    f("norm1", norm1);
    f("norm2", norm2);
  }
  Variable operator()(const Variable& x, const AttentionMask& mask, const Context& context) const;
};

struct Encoder : Module {
  std::vector<std::unique_ptr<EncoderLayer>> layers;
  std::unique_ptr<LayerNormalisation> final_norm;

  Encoder(const TransformerOptions& options, Generator& generator);
  void fields(Fields& f) override {
    f("layers", layers);
    if (final_norm) f("final_norm", *final_norm);
  }
  // x [B, N, features] -> the same shape. Layer i draws under the number context.layer + i.
  Variable operator()(const Variable& x, const AttentionMask& mask, const Context& context) const;

  // Another variant in every layer (see MultiHeadAttention).
  void swap_attention(const std::string& spec, const std::map<std::string, std::string>& defaults = {});
};

}  // namespace cairn
