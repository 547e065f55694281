#pragma once
// BERT's encoder (Devlin et al. 2019), for published models: embeddings of tokens, positions and types, then the
// post-norm encoder of transformer.h. Its parameters have the published names.
#include "nn/transformer.h"

namespace cairn {

// The encoder's options begin with the sizes of BERT-base, and full attention.
struct BertOptions : TransformerOptions {
  int64_t vocabulary = 30522, positions = 512, types = 2;
  double epsilon = 1e-12;  // of all layer normalizations

  BertOptions() {
    layers = 12;
    heads = 12;
    head_size = 64;
    feed_forward = 3072;
    attention = "full";
  }
};

struct Bert : Module {
  BertOptions options;
  Embedding words, positions, types;
  LayerNorm norm;
  Encoder encoder;

  // Errors: as Encoder(); a size below 0.
  Bert(const BertOptions& options, Generator& generator);
  void fields(Fields& f) override;

  // Tokens int32 [B, N], all of type 0, on the parameters' device -> [B, N, features]. lengths int32 [B]: beyond a
  // sequence's length, any token will do, and rows of the result mean nothing. Error (UsageError): N exceeds the number
  // of positions.
  Variable operator()(const Tensor& tokens, const Tensor& lengths, const Context& context) const;
};

}  // namespace cairn
