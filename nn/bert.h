#pragma once
// BERT's encoder (Devlin et al. 2019), for models that others have trained: embeddings of tokens, positions and types,
// then the post-norm encoder of transformer.h. Its parameters have the names under which such models are published.
#include "nn/transformer.h"

namespace cairn {

struct BertOptions {
  int64_t vocabulary = 30522, positions = 512, types = 2;
  int64_t layers = 12, heads = 12, head_size = 64, feed_forward = 3072;
  double epsilon = 1e-12;  // of all layer normalizations
  Activation activation = Activation::gelu;

  int64_t features() const { return heads * head_size; }
};

struct Bert : Module {
  BertOptions options;
  Embedding words, positions, types;
  LayerNorm norm;
  Encoder encoder;
  DType activation_dtype = DType::float32;  // on CUDA also bfloat16; the parameters stay float32

  // Full attention in every layer. Error (UsageError): a size below 1.
  Bert(const BertOptions& options, Generator& generator);
  void fields(Fields& f) override;

  // Tokens int32 [B, N], all of type 0, on the parameters' device: [B, N, features]. lengths int32 [B]: behind a
  // sequence's length stand any tokens, and rows that mean nothing. Error (UsageError): N is more than there are
  // positions.
  Variable operator()(const Tensor& tokens, const Tensor& lengths, const Context& context) const;
};

}  // namespace cairn
