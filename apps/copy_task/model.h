#pragma once
// The copy task's model: embedded tokens plus fixed positions, an encoder, and a linear layer to the symbols.
#include "apps/copy_task/data.h"
#include "nn/transformer.h"

namespace cairn::copy_task {

struct Model : Module {
  Embedding embedding;
  Encoder encoder;
  Linear output;
  Tensor positions;  // [n, features], in the element type of the activations

  // For sequences of n tokens.
  Model(const TransformerOptions& options, int64_t n, Generator& generator);
  void fields(Fields& f) override {
    f("embedding", embedding);
    f("encoder", encoder);
    f("output", output);
  }
  // Where it computes from now on, and in which type: float32, or on CUDA bfloat16 (the parameters stay float32).
  void place(Device device, DType activations);
  // Tokens int32 [batch, n], on any device, -> float32 logits [batch, n, classes].
  Variable operator()(const Tensor& input, const Context& context) const;
};

// What an evaluation finds.
struct Metrics {
  double loss = 0, accuracy = 0;
  double masked_accuracy = 0;  // over masked positions alone; NaN where nothing is masked

  // Are unmasked symbols copied, and masked ones still guessed?
  bool on_plateau() const { return accuracy > 0.8 && masked_accuracy < 0.3; }
};

// Of `sequences` fresh ones, named by (seed, step). Records nothing. With `may_stop`, an interruption ends it early:
// then it is no evaluation of all of them. The sequences come in small batches: those of one batch share their hash
// planes, and many draws of planes make the figure steadier than many sequences under one.
Metrics evaluate(const Model& model, int64_t length, int64_t sequences, uint64_t seed, uint64_t step,
                 bool may_stop = false);
inline constexpr int64_t evaluation_batch = 8;

// On which trained weights are judged, in training and after: a step whose sequences no training has seen, and how
// many.
inline constexpr uint64_t unseen_step = uint64_t(1) << 40;
inline constexpr int64_t final_sequences = 1024;

}  // namespace cairn::copy_task
