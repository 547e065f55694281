#include "apps/speech/batches.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "apps/speech/decode.h"
#include "apps/speech/features.h"
#include "core/error.h"
#include "core/ops.h"
#include "nn/io/json.h"

namespace cairn::speech {
namespace {

void shuffle(std::vector<size_t>& order, RandomStream& random) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(uint32_t(i))]);
}

std::vector<size_t> indices(size_t n) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t(0));
  return order;
}

Sentence joined(const std::vector<Sentence>& sentences, const std::vector<size_t>& parts) {
  if (parts.size() == 1) return sentences[parts[0]];
  Sentence whole;
  std::vector<Tensor> features;
  bool is_aligned = true;
  for (const size_t part : parts) {
    const Sentence& sentence = sentences[part];
    whole.name += (whole.name.empty() ? "" : " + ") + sentence.name;
    features.push_back(sentence.features);
    whole.labels.insert(whole.labels.end(), sentence.labels.begin(), sentence.labels.end());
    whole.alignment.insert(whole.alignment.end(), sentence.alignment.begin(), sentence.alignment.end());
    is_aligned = is_aligned && !sentence.alignment.empty();
  }
  whole.features = concat(features, 0);
  if (!is_aligned) whole.alignment.clear();
  return whole;
}

// Groups of `count` entries of `order`; the last may be smaller.
std::vector<std::vector<size_t>> groups_of(const std::vector<size_t>& order, int64_t count) {
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i % size_t(count) == 0) groups.emplace_back();
    groups.back().push_back(order[i]);
  }
  return groups;
}

}  // namespace

Batch make_batch(const std::vector<Sentence>& sequences, const Settings& settings) {
  const auto batch = int64_t(sequences.size());
  int64_t positions = 0, labels = 0;
  for (const Sentence& sequence : sequences) {
    positions = std::max(positions, position_count(sequence.frames(), settings.stride));
    labels = std::max(labels, int64_t(sequence.labels.size()));
  }
  const int64_t frames_seen = settings.stride + 2 * settings.splice, features = bins * frames_seen;
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
      std::copy(frames + begin * bins, frames + end * bins,
                input + (b * positions + i) * features + (begin - first) * bins);
    }
    result.lengths.mutable_data<int32_t>()[b] = int32_t(length);
    std::copy(sequence.labels.begin(), sequence.labels.end(), result.targets.mutable_data<int32_t>() + b * labels);
    result.target_lengths.mutable_data<int32_t>()[b] = int32_t(sequence.labels.size());
  }
  return result;
}

std::vector<Sentence> join(const std::vector<Sentence>& sentences, int64_t count) {
  std::vector<Sentence> sequences;
  for (const auto& group : groups_of(indices(sentences.size()), count)) sequences.push_back(joined(sentences, group));
  return sequences;
}

std::vector<std::vector<size_t>> cut_batches(const std::vector<int64_t>& frames, int64_t batch_frames) {
  std::vector<size_t> order = indices(frames.size());
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return frames[a] < frames[b]; });
  std::vector<std::vector<size_t>> batches;
  for (const size_t i : order) {
    if (batches.empty() || int64_t(batches.back().size() + 1) * frames[i] > batch_frames) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

void check_targets(const std::vector<Sentence>& sentences, int64_t stride, int64_t join, const std::string& file) {
  for (const Sentence& sentence : sentences) {
    // Joined sentences share a position, and equal phones at the seam need a blank.
    const int64_t positions = join > 1 ? sentence.frames() / stride - 1 : position_count(sentence.frames(), stride);
    check<DataError>(positions_needed(sentence.labels) <= positions, file, ": ", in_quotes(sentence.name), ": its ",
                     sentence.labels.size(), " phones do not fit into ", positions,
                     " positions; choose a smaller --stride");
  }
}

void hide_at_random(Sentence& sentence, RandomStream& random) {
  constexpr int64_t masks = 2, most_bins = 8, most_frames = 25;
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

void Epochs::plan() {
  ++epoch_;
  RandomStream random(uint64_t(settings_.compute.seed), uint64_t(epoch_), Purpose::data, order_data);
  std::vector<size_t> order = indices(sentences_.size());
  shuffle(order, random);
  const auto sequences = groups_of(order, settings_.join);
  std::vector<int64_t> frames;
  for (const auto& sequence : sequences)
    frames.push_back(std::accumulate(sequence.begin(), sequence.end(), int64_t(0),
                                     [&](int64_t sum, size_t i) { return sum + sentences_[i].frames(); }));
  const auto batches = cut_batches(frames, settings_.batch_frames);
  std::vector<size_t> shuffled = indices(batches.size());
  shuffle(shuffled, random);
  batches_.clear();
  for (const size_t batch : shuffled) {
    batches_.emplace_back();
    for (const size_t sequence : batches[batch]) batches_.back().push_back(sequences[sequence]);
  }
}

std::vector<Sentence> Epochs::sequences(int64_t step) {
  while (step >= first_step_ + int64_t(batches_.size())) {
    first_step_ += int64_t(batches_.size());
    plan();
  }
  std::vector<Sentence> sequences;
  for (const auto& parts : batches_[size_t(step - first_step_)]) sequences.push_back(joined(sentences_, parts));
  return sequences;
}

}  // namespace cairn::speech
