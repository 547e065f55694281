#include "apps/speech/report_analysis.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cairn::speech {

std::vector<std::vector<int64_t>> confusions(const std::vector<Sentence>& sequences,
                                             const std::vector<std::vector<Spike>>& answers, int64_t classes) {
  const auto labels = size_t(classes);
  std::vector<std::vector<int64_t>> counts(labels, std::vector<int64_t>(labels));
  for (size_t i = 0; i < sequences.size(); ++i)
    for (const auto& [expected, got] : align(sequences[i].labels, labels_of(answers[i])))
      ++counts[size_t(expected)][size_t(got)];
  return counts;
}

namespace {

// The positions whose phone is the most frequent one of their group.
int64_t in_majority(const std::vector<int32_t>& groups, const std::vector<int32_t>& phones) {
  std::map<std::pair<int32_t, int32_t>, int64_t> counts;
  std::map<int32_t, int64_t> most;  // by group
  int64_t sum = 0;                  // of `most`
  for (size_t i = 0; i < groups.size(); ++i) {
    if (++counts[{groups[i], phones[i]}] <= most[groups[i]]) continue;
    ++most[groups[i]];
    ++sum;
  }
  return sum;
}

}  // namespace

void Purity::add(std::vector<int32_t> labels, const std::vector<int32_t>& alignment, int64_t stride) {
  std::vector<int32_t> phones;
  for (size_t i = 0; i < labels.size(); ++i)
    phones.push_back(alignment[std::min(i * size_t(stride) + size_t(stride) / 2, alignment.size() - 1)]);
  positions += int64_t(labels.size());
  clusters += in_majority(labels, phones);
  std::sort(labels.begin(), labels.end());
  runs += in_majority(labels, phones);
}

std::vector<std::vector<Purity>> purity(Model& model, const std::vector<Sentence>& sentences,
                                        const Settings& settings) {
  Generator generator(~uint64_t(settings.compute.seed));
  const auto layers = model.encoder.attentions();
  std::vector<std::vector<Purity>> result(layers.size(), std::vector<Purity>(size_t(settings.model.heads)));
  std::vector<AttentionChoices> made(layers.size());
  for (const Sentence& sentence : sentences) {
    generator.advance();
    for (size_t i = 0; i < layers.size(); ++i) layers[i]->report = &made[i];
    model(make_batch({sentence}, settings), 0, {.generator = &generator});
    for (MultiHeadAttention* layer : layers) layer->report = nullptr;
    if (!made[0]["labels"].defined()) return {};
    if (sentence.alignment.empty()) continue;
    const int64_t n = made[0]["labels"].size(2);
    for (size_t i = 0; i < layers.size(); ++i)
      for (size_t head = 0; head < result[i].size(); ++head) {
        const auto* labels = made[i]["labels"].data<int32_t>() + int64_t(head) * n;
        result[i][head].add({labels, labels + n}, sentence.alignment, settings.stride);
      }
  }
  return result;
}

}  // namespace cairn::speech
