#pragma once
// From sentences to the batches of a training.
#include <cstdint>
#include <vector>

#include "apps/speech/corpus.h"
#include "apps/speech/settings.h"
#include "core/random.h"

namespace cairn::speech {

// Indices of the random streams of training data (Purpose::data): the order of an epoch, and what a step changes.
inline constexpr uint32_t order_data = 0, augmentation_data = 1;

struct Batch {
  Tensor input;                    // float32 [sequences, positions, filterbanks * (stride + 2 splice)]
  Tensor lengths;                  // int32 [sequences], in positions
  Tensor targets, target_lengths;  // int32 [sequences, labels], [sequences]

  int64_t size() const { return input.size(0); }
  Batch to(Device device) const {
    return {input.to(device), lengths.to(device), targets.to(device), target_lengths.to(device)};
  }
  int64_t positions() const { return input.size(1); }
};

constexpr int64_t position_count(int64_t frames, int64_t stride) { return (frames + stride - 1) / stride; }
// Position i sees the frames [i stride - splice, (i + 1) stride + splice); there are zeros beyond the ends.
Batch make_batch(const std::vector<Sentence>& sequences, const Settings& settings);

// The sentences of a part of the data as a model takes them: normalized, and with the model's labels. Errors
// (DataError; file and sentence are named): there are none; the model takes another number of filterbanks; the model
// does not know a label's phone; the labels do not fit into the positions, or would not after joining. A corpus that is
// moved here lends its memory to them.
std::vector<Sentence> sentences_of(Corpus corpus, const std::string& part, const FrontEnd& model,
                                   const Settings& settings);
// Every `count` sentences as one sequence, which then has the name of the first, and no alignment.
std::vector<Sentence> join(const std::vector<Sentence>& sentences, int64_t count);
// The indices of the sequences, sorted by length, in batches of at most `batch_frames` with padding, but at least one
// sequence.
std::vector<std::vector<size_t>> cut_batches(const std::vector<Sentence>& sequences, int64_t batch_frames);

// SpecAugment (Park et al. 2019) without warping: sets two random bands, each of at most a fifth of the filterbanks,
// and two random spans of frames to 0, the mean of normalized features.
void hide_at_random(Sentence& sentence, RandomStream& random);

// The batches of a training: each epoch joins the sentences at random, sorts them by length and shuffles the batches.
class Epochs {
 public:
  Epochs(const std::vector<Sentence>& sentences, const Settings& settings)
      : sentences_(sentences), settings_(settings) {}
  // The sequences of a step, which seed and step determine. Steps do not go back.
  std::vector<Sentence> sequences(int64_t step);

 private:
  void begin_next();

  const std::vector<Sentence>& sentences_;
  const Settings& settings_;
  int64_t epoch_ = -1, first_step_ = 0;
  std::vector<Sentence> sequences_;           // of the epoch
  std::vector<std::vector<size_t>> batches_;  // their indices
};

}  // namespace cairn::speech
