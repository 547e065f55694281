#pragma once
// The model of the copy task: embedded tokens plus fixed positions, an encoder, and a linear layer to the symbols.
#include <string>

#include "apps/copy_task/data.h"
#include "apps/copy_task/settings.h"
#include "nn/transformer.h"

namespace cairn::copy_task {

struct Model : Module {
  Embedding embedding;
  Encoder encoder;
  Linear output;
  SinusoidalPositions positions;
  int64_t n;        // tokens of a sequence
  bool causal;      // a position sees only those before it, and itself
  bool from_other;  // the second copy attends to the first alone, by cross attention, and it alone is answered

  // Error (UsageError): the attention variant cannot be causal, or cannot be cross attention.
  Model(const Settings& settings, Generator& generator);
  void fields(Fields& f) override {
    f("embedding", embedding);
    f("encoder", encoder);
    f("output", output);
  }
  // Tokens int32 [batch, n], on any device, -> float32 logits [batch, answers(), classes].
  Variable operator()(const Tensor& input, const Context& context) const;
  // The number of positions that it answers: all, or those of the second copy; and these positions' tokens.
  int64_t answers() const { return from_other ? n / 2 : n; }
  Tensor answered(const Tensor& all) const { return from_other ? slice(all, 1, n / 2, n).value() : all; }
  // full_attention_note() for its sequences.
  std::string full_note() const;
};

// The result of an evaluation.
struct Metrics {
  double loss = 0, accuracy = 0;
  double masked_accuracy = 0;  // over masked positions alone; NaN if nothing is masked
};
// Metrics to JSON, in which NaN is null; a result as a line of text.
Json as_json(const Metrics& metrics);
std::string metrics_text(const Json& json);
// Does a model with these accuracies copy unmasked symbols, and still guess masked ones?
inline bool is_plateau(double accuracy, double masked_accuracy) { return accuracy > 0.8 && masked_accuracy < 0.3; }

// Evaluates `sequences` fresh sequences, which (seed, step) determines, without gradients. With `may_stop`, an
// interruption ends it early, and the metrics are of fewer sequences. Batches are small, because the sequences of a
// batch share their hash planes: more draws of planes vary the metrics less.
Metrics evaluate(const Model& model, int64_t length, int64_t sequences, uint64_t seed, uint64_t step,
                 bool may_stop = false);
inline constexpr int64_t evaluation_batch = 8;

// The sequences on which a trained model is evaluated are of a step that no training reaches.
inline constexpr uint64_t unseen_step = uint64_t(1) << 40;

}  // namespace cairn::copy_task
