#pragma once
// A transformer that predicts the next byte of a text: embedded bytes plus fixed positions, a causal encoder, and a
// linear layer.
#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/training.h"
#include "nn/transformer.h"

namespace cairn::language_model {

inline constexpr int64_t byte_values = 256;

// A text, cut in two: the model learns from the first nine tenths, and is measured on the rest.
struct SplitText {
  std::string train, held_out;

  // Error (DataError): as read_file(); the file is too short for a window of the context in each part, or has
  // more than 4 GiB.
  SplitText(const std::string& file, int64_t context);
  DataRecord record(const std::string& file) const;
};

// Windows of a text, of equal length. The target of a byte is the byte behind it.
struct Batch {
  Tensor input, target;  // int32 [windows, length]

  Batch(const std::string& text, const std::vector<int64_t>& begins, int64_t length, Device device);
};

// The settings of a run.
struct Settings {
  std::string text;  // the file
  int64_t context = 512, batch = 32;
  TransformerOptions model{
      .heads = 8, .feed_forward = 1024, .attention = "full", .norm = Norm::pre, .final_norm = true};
  TrainingOptions training{.iterations = 10000,
                           .learning_rate = 1e-3,
                           .schedule = TrainingOptions::Rate::linear,
                           .warm_up = 50,
                           .clip = 1,
                           .beta2 = 0.99};  // with 0.999 the same steps get less far
  bool quick = false;
  ComputeSettings compute;

  void fields(SettingFields& f);
};

struct Model : Module {
  Embedding embedding;
  Encoder encoder;
  Linear output;
  SinusoidalPositions positions;
  int64_t context;  // bytes that it sees at once

  // Error (UsageError): as set_attention().
  Model(const Settings& settings, Generator& generator);
  void fields(Fields& f) override {
    f("embedding", embedding);
    f("encoder", encoder);
    f("output", output);
  }
  // Bytes int32 [batch, n] -> float32 logits [batch, n, 256] of the byte behind each, from this and those before it.
  Variable operator()(const Tensor& input, const Context& given) const;
  // Error (UsageError): as Encoder::swap_attention(); the variant cannot be causal (the message names those that can).
  void set_attention(const std::string& spec);
};

// Bits that a byte of the text costs the model, which predicts it from the bytes before it in its window. The windows
// lie one behind the other, so the first byte of each is predicted from one byte, and the text's first is not counted.
// With `every` > 1 only every so many-th window counts. Throws Interrupted if the user asks to stop and `may_stop`.
double bits_per_byte(const Model& model, const std::string& text, int64_t every, bool may_stop);

// The byte that the model writes behind a text: drawn from the softmax of logits / temperature; below 0.001, the
// likeliest one.
char next_byte(const Model& model, const std::string& text, double temperature, RandomStream& random);
// What the model writes behind a text: so many bytes, with temperature 0.7.
std::string written(const Model& model, std::string text, int64_t bytes);

// Trains the run, or goes on with it, and returns its result. Errors: as SplitText(), Model() and Training.
Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute);

// Writes report.html: the training, and what the model does, which is on the CPU from then on. The result is null if
// the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  const SplitText& text, Model& model);

}  // namespace cairn::language_model
