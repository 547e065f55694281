#pragma once
// The recognizer: a linear layer from frames to features, fixed positions, an encoder, and a linear layer to the phones
// and CTC's blank.
#include <cstdint>
#include <string>
#include <vector>

#include "apps/speech/batches.h"
#include "apps/speech/decode.h"
#include "apps/speech/settings.h"
#include "nn/transformer.h"

namespace cairn::speech {

struct Model : Module {
  Linear input;
  Encoder encoder;
  Linear output;
  SinusoidalPositions positions;

  // Starts with answers that are almost only blanks, and with offset heads if the settings say so. Error (UsageError):
  // an odd number of features has none.
  Model(const Settings& settings, int64_t filterbanks, int64_t classes, Generator& generator);
  void fields(Fields& f) override {
    f("input", input);
    f("encoder", encoder);
    f("output", output);
  }
  // float32 logits [sequences, positions, classes] of a batch on the model's device. The first position has this
  // number.
  Variable operator()(const Batch& batch, int64_t first_position, const Context& context) const;
};

// The mean CTC loss of the sequences of a batch.
Variable loss_of(const Variable& logits, const Batch& batch);

struct Recognition {
  double loss = 0;                          // nats per phone
  double phone_error_rate = 0;              // errors / phones of the reference, over all sequences
  std::vector<std::vector<Spike>> answers;  // of each sequence
  std::vector<int64_t> errors;              // of each sequence
  double seconds = 0;                       // of the model alone, over all sequences
  // How often the answers have the label `got` where the references have `expected`: [expected][got]. 0: no label.
  std::vector<std::vector<int64_t>> confusions;
};
// The metrics as JSON, in which NaN is null; a result as a line of text.
Json as_json(const Recognition& found);
std::string metrics_text(const Json& json);
// What the model answers to these sequences, without gradients. The random numbers of the attention depend on the seed
// alone. Throws Interrupted if the user has asked to stop and `may_stop`.
Recognition recognize(const Model& model, const std::vector<Sentence>& sequences, const Settings& settings,
                      bool may_stop = false);

// The controls of every table: the same attention for all queries, and none.
inline constexpr const char *same_for_all = "clustered-1", *no_attention = "none";
// Adds the variant "none": the output is 0, so the encoder has no attention. Call it once, before any other.
void add_no_attention();

}  // namespace cairn::speech
