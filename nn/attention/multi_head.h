#pragma once
// The projections around any attention variant, so that trained weights do not depend on it and evaluation can swap it
// (but for variants with parameters of their own, or with the queries for keys).
#include "nn/attention/attention.h"
#include "nn/layers.h"

namespace cairn {

struct MultiHeadAttention : Module {
  Linear query;
  std::unique_ptr<Linear> key;  // none where the keys are the queries
  Linear value, out;
  int64_t heads;
  double dropout;  // of attention weights
  std::unique_ptr<Attention> attention;

  // Error (UsageError): heads or head_size < 1.
  MultiHeadAttention(int64_t features, int64_t heads, int64_t head_size, double dropout,
                     std::unique_ptr<Attention> attention, Generator& generator);
  void fields(Fields& f) override;

  // Another variant around the same weights. Error (UsageError): it has the queries for keys and these weights have
  // keys of their own, or it has parameters of its own.
  void swap_attention(std::unique_ptr<Attention> other);

  // x [B, N, features] attends to itself or to `memory` [B, S, features]: [B, N, features].
  Variable operator()(const Variable& x, const AttentionMask& mask, const Context& context) const {
    return (*this)(x, x, mask, context);
  }
  Variable operator()(const Variable& x, const Variable& memory, const AttentionMask& mask,
                      const Context& context) const;

  // For tests, pictures and comparisons: choices to replay, and where to write those made.
  const AttentionChoices* replay = nullptr;
  AttentionChoices* report = nullptr;
};

}  // namespace cairn
