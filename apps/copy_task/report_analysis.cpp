#include "apps/copy_task/report_analysis.h"

#include <algorithm>
#include <cmath>

#include "core/ops.h"

namespace cairn::copy_task {

std::optional<Plateau> find_plateau(const std::vector<EvaluationRecord>& evaluations) {
  size_t best = 0, best_size = 1;
  const auto flat = [&](size_t i) { return i < evaluations.size() && evaluations[i].evaluation.on_plateau(); };
  for (size_t i = 0, end; i < evaluations.size(); i = end + 1) {
    for (end = i; flat(end);) ++end;
    if (end - i > best_size) best = i, best_size = end - i;
  }
  if (best_size < 2) return {};
  const size_t end = best + best_size;
  Plateau result{evaluations[best].step, evaluations[end - 1].step, 0, 0, {}};
  for (size_t i = best; i < end; ++i) {
    result.accuracy += evaluations[i].evaluation.accuracy / double(best_size);
    result.masked_accuracy += evaluations[i].evaluation.masked_accuracy / double(best_size);
  }
  if (end < evaluations.size() && evaluations[end].evaluation.masked_accuracy >= 0.3)
    result.over = evaluations[end].step;
  return result;
}

Example run_example(Model& model, const Batch& batch, uint64_t seed) {
  const NoGrad no_grad;
  const Generator generator(~seed);
  Example example{batch.input.to_vector<int32_t>(), batch.target.to_vector<int32_t>(), {}, {}};
  const auto run = [&] {
    example.answer = argmax(model(batch.input, {false, &generator}).value()).to_vector<int32_t>();
  };
  // A layer's dense weights take this many numbers, four times over.
  const double numbers = std::pow(double(example.size()), 2) * double(model.encoder.layers[0]->attention.heads);
  if (numbers <= double(1 << 25))
    example.layers = observe(model.encoder.attentions(), run);
  else
    run();
  return example;
}

double l1_distance(const std::vector<float>& a, const std::vector<float>& b, int64_t n) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double(a[i]) - double(b[i]));
  return sum / double(n);
}

double to_other_copy(const float* weights, const std::vector<int32_t>& input) {
  const auto n = int64_t(input.size());
  double sum = 0;
  int64_t masked = 0;
  for (int64_t i = 0; i < n; ++i)
    if (input[size_t(i)] == mask_token) sum += weights[i * n + (i + n / 2) % n], ++masked;
  return masked ? sum / double(masked) : NAN;
}

double PairCount::share() const { return all > 0 ? double(together) / double(all) : NAN; }

void ClusterPairs::add(const int32_t* labels, const int32_t* input, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n && labels[i] >= 0; ++j) {
      if (labels[j] < 0) continue;
      const bool is_near = j - i <= reach, same_token = input[i] == input[j], same_place = j - i == n / 2;
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
  const int64_t n = sequence_length(length);
  auto& layers = model.encoder.layers;
  const int64_t heads = layers[0]->attention.heads;
  std::vector<std::vector<ClusterPairs>> pairs(layers.size(), std::vector<ClusterPairs>(size_t(heads)));
  std::vector<AttentionChoices> made(layers.size());
  RandomStream random(seed, 1, Purpose::data, 2);
  Generator generator(~seed);
  for (int64_t done = 0; done < sequences; done += evaluation_batch) {
    const Batch batch = make_batch(std::min(evaluation_batch, sequences - done), length, random);
    generator.set_step(uint64_t(done) + 1);
    for (size_t i = 0; i < layers.size(); ++i) layers[i]->attention.report = &made[i];
    model(batch.input, {false, &generator});
    for (auto& layer : layers) layer->attention.report = nullptr;
    for (int64_t b = 0; b < batch.input.size(0); ++b) {
      const auto labels = [&](size_t layer, int64_t head) {
        return made[layer]["labels"].data<int32_t>() + (b * heads + head) * n;
      };
      for (size_t i = 0; i < layers.size(); ++i)
        for (int64_t h = 0; h < heads; ++h) {
          ClusterPairs& counts = pairs[i][size_t(h)];
          counts.add(labels(i, h), batch.input.data<int32_t>() + b * n, n);
          for (int64_t there = 0; there < heads && i + 1 < layers.size(); ++there)
            counts.add_next(labels(i, h), labels(i + 1, there), n);
        }
    }
  }
  return pairs;
}

double median(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return std::isnan(v); }), values.end());
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::vector<int> cluster_names(const int32_t* labels, int64_t n) {
  std::vector<int> names(size_t(n), -1);
  int next = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (labels[i] < 0 || names[size_t(i)] >= 0 || std::count(labels, labels + n, labels[i]) < 2) continue;
    for (int64_t j = i; j < n; ++j)
      if (labels[j] == labels[i]) names[size_t(j)] = next;
    ++next;
  }
  return names;
}

}  // namespace cairn::copy_task
