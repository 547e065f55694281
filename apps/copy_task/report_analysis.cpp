#include "apps/copy_task/report_analysis.h"

#include <algorithm>
#include <cmath>
#include <iterator>

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

void ClusterPairs::add(const int32_t* labels, const int32_t* input, int64_t n) {
  const int64_t half = n / 2;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n && labels[i] >= 0; ++j) {
      if (labels[j] < 0) continue;
      const bool together = labels[i] == labels[j], same_token = input[i] == input[j], same_place = j - i == half;
      const bool close = j - i <= reach, one_masked = (input[i] == mask_token) != (input[j] == mask_token);
      const auto tally = [together](Kind& kind, bool comparable, bool has) {
        if (!comparable) return;
        ++kind.among.all, kind.among.together += together;
        kind.with.all += has, kind.with.together += has && together;
      };
      tally(near, !same_token, close);
      tally(token, !close && !same_place, same_token);
      tally(place, i < half && j >= half && one_masked, same_place);
    }
}

double ClusterPairs::Kind::lift() const {
  if (with.all == 0 || among.together == 0) return NAN;
  return double(with.together) / double(with.all) / (double(among.together) / double(among.all));
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
    for (size_t i = 0; i < layers.size(); ++i) {
      layers[i]->attention.report = nullptr;
      for (int64_t b = 0; b < batch.input.size(0); ++b)
        for (int64_t h = 0; h < heads; ++h)
          pairs[i][size_t(h)].add(made[i]["labels"].data<int32_t>() + (b * heads + h) * n,
                                  batch.input.data<int32_t>() + b * n, n);
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

std::string verdict(const std::vector<double>& lifts) {
  static constexpr const char* names[] = {"proximity", "content", "the place in the copy"};
  std::vector<std::string> found;
  for (size_t i = 0; i < std::min(lifts.size(), std::size(names)); ++i)
    if (lifts[i] > 1.25) found.push_back(names[i]);  // less is hardly more than chance
  if (found.empty()) return "none of the three stands out from chance";
  std::string list = found[0];
  for (size_t i = 1; i < found.size(); ++i) list += (i + 1 < found.size() ? ", " : " and ") + found[i];
  return list + (found.size() == 1 ? " plays a part" : " play a part");
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
