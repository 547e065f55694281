#include "apps/copy_task/report_analysis.h"

#include <algorithm>
#include <cmath>

#include "apps/common/report.h"
#include "core/ops.h"

namespace cairn::copy_task {

Example run_example(Model& model, const Batch& batch, uint64_t seed) {
  const NoGrad no_grad;
  const Generator generator(~seed);
  Example example{model.answered(batch.input).to_vector<int32_t>(), model.answered(batch.target).to_vector<int32_t>()};
  if (model.from_other) example.memory = slice(batch.input, 1, 0, model.n / 2).value().to_vector<int32_t>();
  const auto run = [&] {
    example.answer = argmax(model(batch.input, {.generator = &generator}).value()).to_vector<int32_t>();
  };
  example.layers = observe_sequence(model.encoder.attentions(), example.size(), run);
  return example;
}

std::vector<std::vector<double>> other_copy_shares(const Example& example) {
  return weight_shares(example.layers, std::count(example.input.begin(), example.input.end(), mask_token),
                       [&](int64_t i, int64_t j) { return example.is_masked(i) && j == example.other(i); });
}

void ClusterPairs::add(const int32_t* labels, const int32_t* input, const int32_t* target, int64_t n, int64_t copies) {
  for (int64_t i = 0; i < n; ++i) {
    if (labels[i] < 0 || input[i] != mask_token) continue;
    bool is_crowded = false;
    for (int64_t j = 0; j < n; ++j)
      is_crowded |= labels[j] == labels[i] && input[j] == mask_token && target[j] != target[i];
    ++crowded.all;
    crowded.together += is_crowded;
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n && labels[i] >= 0; ++j) {
      if (labels[j] < 0) continue;
      ++any.all;
      any.together += labels[i] == labels[j];
      const bool is_near = j - i <= reach, same_token = input[i] == input[j], same_place = (j - i) * copies == n;
      if (int(is_near) + int(same_token) + int(same_place) > 1) continue;
      PairCount& count = is_near ? near : same_token ? token : same_place ? place : none;
      ++count.all;
      count.together += labels[i] == labels[j];
    }
}

void ClusterPairs::add_next(const int32_t* labels, const int32_t* labels_there, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n && labels[i] >= 0; ++j) {
      if (labels[i] != labels[j]) continue;
      ++next.all;
      next.together += labels_there[i] == labels_there[j];
    }
}

std::vector<std::vector<ClusterPairs>> count_pairs(Model& model, int64_t length, int64_t sequences, uint64_t seed) {
  const NoGrad no_grad;
  const int64_t n = model.answers();
  const auto layers = model.encoder.attentions();
  const int64_t heads = layers[0]->heads;
  std::vector<std::vector<ClusterPairs>> pairs(layers.size(), std::vector<ClusterPairs>(size_t(heads)));
  RandomStream random(seed, 1, Purpose::data, displayed_data);
  Generator generator(~seed);
  for (int64_t done = 0; done < sequences; done += evaluation_batch) {
    const Batch batch = make_batch(std::min(evaluation_batch, sequences - done), length, random, model.causal);
    generator.set_step(uint64_t(done) + 1);
    const auto seen = observe(
        layers, [&] { model(batch.input, {.generator = &generator}); }, false);
    const Tensor input = model.answered(batch.input), target = model.answered(batch.target);
    for (int64_t b = 0; b < input.size(0); ++b) {
      const auto labels = [&](size_t layer, int64_t head) {
        return seen[layer].choices.labels.data<int32_t>() + (b * heads + head) * n;
      };
      for (size_t i = 0; i < layers.size(); ++i)
        for (int64_t h = 0; h < heads; ++h) {
          ClusterPairs& counts = pairs[i][size_t(h)];
          counts.add(labels(i, h), input.data<int32_t>() + b * n, target.data<int32_t>() + b * n, n,
                     model.from_other ? 1 : 2);
          for (int64_t there = 0; there < heads && i + 1 < layers.size(); ++there)
            counts.add_next(labels(i, h), labels(i + 1, there), n);
        }
    }
  }
  return pairs;
}

double median_share(const std::vector<ClusterPairs>& heads, PairCount ClusterPairs::*kind) {
  std::vector<double> shares;
  for (const ClusterPairs& head : heads) {
    const PairCount& count = head.*kind;
    if (count.all > 0) shares.push_back(double(count.together) / double(count.all));
  }
  if (shares.empty()) return NAN;
  std::sort(shares.begin(), shares.end());
  const size_t n = shares.size();
  return (shares[(n - 1) / 2] + shares[n / 2]) / 2;
}

}  // namespace cairn::copy_task
