#pragma once
// The simple layers. Inputs are [..., features]. Parameters stay in float32 where activations are bfloat16: operations
// use them rounded (Variable::rounded), and their gradients, moments and updates are float32 (mixed precision).
#include <optional>

#include "core/functions.h"
#include "nn/module.h"

namespace cairn {

// Checks a layer's input. Error: x is not [batch, position, features]; names the layer.
void check_sequences(const char* layer, const Variable& x, int64_t features);

// activation(x weight^T + bias). weight [out, in] and bias [out] start uniform within 1 / sqrt(in).
struct Linear : Module {
  Variable weight, bias;

  Linear(int64_t in, int64_t out, Generator& generator);
  void fields(Fields& f) override {
    f("weight", weight);
    f("bias", bias);
  }
  Variable operator()(const Variable& x, std::optional<Unary> activation = {}) const;
};

// Row `token` of weight [tokens, features], which starts standard normal.
struct Embedding : Module {
  Variable weight;

  Embedding(int64_t tokens, int64_t features, Generator& generator);
  void fields(Fields& f) override { f("weight", weight); }
  // int32 [...] -> [..., features]. Error: a token outside [-1, tokens); -1 gives zeros.
  Variable operator()(const Tensor& tokens) const;
};

// Over the last axis. weight starts at 1, bias at 0.
struct LayerNorm : Module {
  Variable weight, bias;
  double epsilon = 1e-5;

  explicit LayerNorm(int64_t features);
  void fields(Fields& f) override {
    f("weight", weight);
    f("bias", bias);
  }
  Variable operator()(const Variable& x) const;
};

// linear2(dropout(activation(linear1(x)))).
struct FeedForward : Module {
  Linear linear1, linear2;
  Unary activation;
  double dropout;

  FeedForward(int64_t features, int64_t hidden, Unary activation, double dropout, Generator& generator);
  void fields(Fields& f) override {
    f("linear1", linear1);
    f("linear2", linear2);
  }
  Variable operator()(const Variable& x, const Context& context) const;
};

// Dropout in training; otherwise x.
Variable apply_dropout(const Variable& x, double p, const Context& context, Purpose purpose);

// The mean of each sequence's first `lengths` rows: x [B, N, features], lengths int32 [B] -> [B, features]. A sequence
// of length 0 gives zeros.
Variable mean_over_length(const Variable& x, const Tensor& lengths);

// Fixed sinusoidal positions (Vaswani et al. 2017, section 3.5): [n, features]. Element 2 i of row p is
// sin(p / 10000^(2 i / features)), and element 2 i + 1 the cosine of the same angle.
Tensor sinusoidal_positions(int64_t n, int64_t features);
// x [B, N, features] plus the positions first, first + 1, ...
struct SinusoidalPositions {
  Variable operator()(const Variable& x, int64_t first = 0) const;

 private:
  mutable Tensor table_;  // as many positions as were needed so far, in the last x's element type, on its device
};
// 10000^(2 i / features), for elements 2 i and 2 i + 1: 1 / their frequency.
double period_of(int64_t element, int64_t features);

}  // namespace cairn
