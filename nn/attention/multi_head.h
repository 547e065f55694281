#pragma once
// The projections around any attention variant. Trained weights do not depend on the variant, so evaluation can swap it
// (except for variants with parameters of their own, or with the queries as keys).
#include "nn/attention/attention.h"
#include "nn/layers.h"

namespace cairn {

// What a layer's variant does in a forward pass: for tests, pictures and comparisons.
struct Observation {
  AttentionChoices choices;  // the pass uses those that are defined, and writes the others
  Tensor q, k, v;            // [B, N, H, D], [B, S, H, D], [B, S, H, M]
  AttentionMask mask;
  Tensor weights{}, full{};  // without dropout: of the variant, of full attention; written by observe() alone
};

struct MultiHeadAttention : Module {
  Linear query;
  std::unique_ptr<Linear> key;  // null if the queries are the keys
  Linear value, out;
  int64_t heads;
  double dropout;  // of attention weights
  std::unique_ptr<Attention> attention;
  std::string trained_with;  // the variant that the weights are for, for messages

  // Error (UsageError): heads or head_size < 1.
  MultiHeadAttention(int64_t features, int64_t heads, int64_t head_size, double dropout,
                     std::unique_ptr<Attention> attention, Generator& generator);
  void fields(Fields& f) override;

  // Replaces the variant and keeps the weights. Error (UsageError): the new one uses the queries as keys and these
  // weights have a key projection; or one of the two has parameters of its own.
  void swap_attention(std::unique_ptr<Attention> other);

  // x [B, N, features] attends to itself or to `memory` [B, S, features]: [B, N, features].
  Variable operator()(const Variable& x, const AttentionMask& mask, const Context& context) const {
    return (*this)(x, x, mask, context);
  }
  Variable operator()(const Variable& x, const Variable& memory, const AttentionMask& mask,
                      const Context& context) const;

  Observation* observation = nullptr;  // null: nobody observes
};

}  // namespace cairn
