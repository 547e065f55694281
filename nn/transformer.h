#pragma once
// The transformer's encoder, and a layer of its decoder (Vaswani et al. 2017).
#include <functional>
#include <map>

#include "nn/attention/multi_head.h"

namespace cairn {

// Layer normalization after each residual sum (as in the original transformer), or before each block.
enum class Norm { post, pre };

struct TransformerOptions {
  int64_t layers = 4, heads = 6, head_size = 32, feed_forward = 768;
  std::string attention = "i-clustered-15";
  std::map<std::string, std::string> attention_defaults{};  // for options that the specification does not give
  double dropout = 0;            // of each block's output and the feed forward's hidden layer
  double attention_dropout = 0;  // of attention weights
  Norm norm = Norm::post;
  Unary activation = Unary::gelu;
  bool final_norm = false;

  int64_t features() const { return heads * head_size; }
};

// Bytes that the training of an encoder needs at least, known before it is made: each element of its matrices has a
// gradient and two moments.
double training_bytes(const TransformerOptions& options);

// What encoder and decoder layers share.
struct ResidualLayer : Module {
  Norm norm;
  double dropout;

  explicit ResidualLayer(const TransformerOptions& options) : norm(options.norm), dropout(options.dropout) {}

  // A block with its residual sum. post: normalize(x + dropout(block(x))); pre: x + dropout(block(normalize(x))).
  Variable residual(const Variable& x, const LayerNorm& normalize, Purpose purpose, const Context& context,
                    const std::function<Variable(const Variable&)>& block) const;
};

// Attention with its residual sum, then the feed forward with its own.
struct EncoderLayer : ResidualLayer {
  MultiHeadAttention attention;
  FeedForward feed_forward;
  LayerNorm norm1, norm2;

  EncoderLayer(const TransformerOptions& options, Generator& generator);
  void fields(Fields& f) override {
    f("attention", attention);
    f("feed_forward", feed_forward);
    f("norm1", norm1);
    f("norm2", norm2);
  }
  // x [B, N, features] attends to itself, or to `memory` [B, S, features] if there is one.
  Variable operator()(const Variable& x, const AttentionMask& mask, const Context& context,
                      const Variable& memory = {}) const;
};

struct Encoder : Module {
  std::vector<std::unique_ptr<EncoderLayer>> layers;
  std::unique_ptr<LayerNorm> final_norm;

  // Error (UsageError): a size below 1, a dropout probability outside [0, 1].
  Encoder(const TransformerOptions& options, Generator& generator);
  void fields(Fields& f) override {
    f("layers", layers);
    if (final_norm) f("final_norm", *final_norm);
  }
  // x [B, N, features] -> the same shape. Layer i draws as layer context.layer + i. With a `memory` [B, S, features],
  // every layer is cross attention to it, in place of self-attention. Error (UsageError): there is a memory, and the
  // variant uses the queries as keys.
  Variable operator()(const Variable& x, const AttentionMask& mask, const Context& context,
                      const Variable& memory = {}) const;

  // The attention of every layer, in order.
  std::vector<MultiHeadAttention*> attentions();
  // Replaces the variant of every layer; errors as MultiHeadAttention::swap_attention.
  void swap_attention(const std::string& spec, const std::map<std::string, std::string>& defaults = {});
};

// `attention` is the self-attention of the target. It must honor a causal mask.
struct DecoderOptions : TransformerOptions {
  std::string cross_attention = "full";  // from the target to the memory

  DecoderOptions() { attention = "full"; }
};

// Causal self-attention, cross attention to a memory (an encoder's output), feed forward; each with its residual sum
// and norm. Error (UsageError) of the constructor: a cross attention that uses the queries as keys. Of the call: a
// self-attention that cannot honor a causal mask.
struct DecoderLayer : ResidualLayer {
  MultiHeadAttention self_attention, cross_attention;
  FeedForward feed_forward;
  LayerNorm norm1, norm2, norm3;

  DecoderLayer(const DecoderOptions& options, Generator& generator);
  void fields(Fields& f) override {
    f("self_attention", self_attention);
    f("cross_attention", cross_attention);
    f("feed_forward", feed_forward);
    f("norm1", norm1);
    f("norm2", norm2);
    f("norm3", norm3);
  }
  // x [B, N, features], memory [B, S, features] -> [B, N, features]. `mask` is for the cross attention; the
  // self-attention uses its query lengths. The cross attention draws as layer context.layer + 1, the rest as layer
  // context.layer.
  Variable operator()(const Variable& x, const Variable& memory, const AttentionMask& mask,
                      const Context& context) const;
};

}  // namespace cairn
