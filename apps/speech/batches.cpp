#include "apps/speech/batches.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "apps/speech/decode.h"
#include "apps/speech/features.h"
#include "autograd/ops.h"
#include "core/error.h"
#include "core/random.h"
#include "core/trace.h"
#include "nn/io/json.h"

namespace cairn::speech {

Batch make_batch(const std::vector<Sentence>& sequences, const Settings& settings) {
  const trace::Span span("data", "program");
  const auto batch = int64_t(sequences.size());
  int64_t positions = 0, labels = 0;
  for (const Sentence& sequence : sequences) {
    positions = std::max(positions, position_count(sequence.frames(), settings.stride));
    labels = std::max(labels, int64_t(sequence.labels.size()));
  }
  const int64_t frames_seen = settings.stride + 2 * settings.splice;
  const int64_t filterbanks = sequences[0].filterbanks(), features = filterbanks * frames_seen;
  Batch result{Tensor::zeros({batch, positions, features}), Tensor({batch}, DType::int32),
               Tensor::zeros({batch, labels}, DType::int32), Tensor({batch}, DType::int32)};
  auto* input = result.input.mutable_data<float>();
  for (int64_t b = 0; b < batch; ++b) {
    const Sentence& sequence = sequences[size_t(b)];
    const int64_t length = position_count(sequence.frames(), settings.stride);
    const auto* frames = sequence.features.data<float>();
    for (int64_t i = 0; i < length; ++i) {
      const int64_t first = i * settings.stride - settings.splice;
      const int64_t begin = std::max<int64_t>(first, 0), end = std::min(first + frames_seen, sequence.frames());
      std::copy(frames + begin * filterbanks, frames + end * filterbanks,
                input + (b * positions + i) * features + (begin - first) * filterbanks);
    }
    result.lengths.mutable_data<int32_t>()[b] = int32_t(length);
    std::copy(sequence.labels.begin(), sequence.labels.end(), result.targets.mutable_data<int32_t>() + b * labels);
    result.target_lengths.mutable_data<int32_t>()[b] = int32_t(sequence.labels.size());
  }
  return result;
}

std::vector<Sentence> sentences_of(Corpus corpus, const std::string& part, const FrontEnd& model,
                                   const Settings& settings) {
  std::vector<Sentence> sentences = std::move(corpus.parts.at(part));
  check<DataError>(!sentences.empty(), corpus.where, ": the part ", part, " has no sentences");
  check<DataError>(corpus.front_end.filterbanks() == model.filterbanks(), corpus.where, ": has ",
                   corpus.front_end.filterbanks(), " filterbanks, the model takes ", model.filterbanks(),
                   "; prepare the data again with --filterbanks ", model.filterbanks());
  std::vector<int32_t> labels{0};  // the model's, by label of the corpus
  for (const std::string& phone : corpus.front_end.phones) labels.push_back(model.label(phone));
  for (Sentence& sentence : sentences) {
    for (int32_t& label : sentence.labels) {
      const std::string& phone = corpus.front_end.phone(label);
      label = labels[size_t(label)];
      check<DataError>(label > 0, corpus.where, ": ", in_quotes(sentence.name), ": the model does not know the phone ",
                       in_quotes(phone));
    }
    for (int32_t& label : sentence.alignment) label = labels[size_t(label)];
    sentence.features = model.normalized(std::move(sentence.features));
    // Joined sentences share a position, and equal phones at the seam need a blank.
    const int64_t positions = settings.join > 1 ? sentence.frames() / settings.stride - 1
                                                : position_count(sentence.frames(), settings.stride);
    check<DataError>(positions_needed(sentence.labels) <= positions, corpus.where, ": ", in_quotes(sentence.name),
                     ": its ", sentence.labels.size(), " phones do not fit into ", positions,
                     " positions; choose a smaller --stride");
  }
  return sentences;
}

std::vector<Sentence> join(const std::vector<Sentence>& sentences, int64_t count) {
  std::vector<Sentence> sequences;
  for (size_t i = 0; i < sentences.size(); ++i) {
    if (i % size_t(count) == 0) {
      sequences.push_back(sentences[i]);
      continue;
    }
    Sentence& whole = sequences.back();
    whole.features = concat({whole.features, sentences[i].features}, 0).value();
    whole.labels.insert(whole.labels.end(), sentences[i].labels.begin(), sentences[i].labels.end());
    whole.alignment.clear();
  }
  return sequences;
}

std::vector<std::vector<size_t>> cut_batches(const std::vector<Sentence>& sequences, int64_t batch_frames) {
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sequences[a].frames() < sequences[b].frames(); });
  std::vector<std::vector<size_t>> batches;
  for (const size_t i : order) {
    if (batches.empty() || int64_t(batches.back().size() + 1) * sequences[i].frames() > batch_frames)
      batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

void hide_at_random(Sentence& sentence, RandomStream& random) {
  const int64_t bins = sentence.filterbanks(), most_bins = bins / 5;
  constexpr int64_t masks = 2, most_frames = 25;
  sentence.features = sentence.features.clone();
  auto* x = sentence.features.mutable_data<float>();
  const int64_t frames = sentence.frames();
  // A random span of at most `most` of n.
  const auto span = [&](int64_t n, int64_t most) {
    const int64_t size = random.below(uint32_t(std::min(n, most) + 1)), begin = random.below(uint32_t(n - size + 1));
    return std::pair(begin, begin + size);
  };
  for (int64_t i = 0; i < masks; ++i) {
    const auto [low, high] = span(bins, most_bins);
    for (int64_t frame = 0; frame < frames; ++frame) std::fill(x + frame * bins + low, x + frame * bins + high, 0.0F);
    const auto [begin, end] = span(frames, most_frames);
    std::fill(x + begin * bins, x + end * bins, 0.0F);
  }
}

void Epochs::begin_next() {
  first_step_ += int64_t(batches_.size());
  ++epoch_;
  RandomStream random(uint64_t(settings_.compute.seed), uint64_t(epoch_), Purpose::data, order_data);
  std::vector<Sentence> sentences = sentences_;
  shuffle(sentences, random);
  sequences_ = join(sentences, settings_.join);
  batches_ = cut_batches(sequences_, settings_.batch_frames);
  shuffle(batches_, random);
}

std::vector<Sentence> Epochs::sequences(int64_t step) {
  while (step >= first_step_ + int64_t(batches_.size())) begin_next();
  std::vector<Sentence> sequences;
  for (const size_t i : batches_[size_t(step - first_step_)]) sequences.push_back(sequences_[i]);
  return sequences;
}

}  // namespace cairn::speech
