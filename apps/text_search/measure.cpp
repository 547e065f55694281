#include "apps/text_search/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "apps/common/options.h"
#include "core/ops.h"

namespace cairn::text_search {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.empty() ? NAN : *middle;
}

}  // namespace

std::vector<std::string> variants_of(Embedder& embedder, const std::string& list) {
  std::vector<std::string> specs{"full"};
  about_option("--variants", [&] {
    for (const std::string& spec : split_specs(list)) {
      if (std::count(specs.begin(), specs.end(), spec) > 0) continue;
      embedder.bert().encoder.swap_attention(spec);  // which looks at it
      specs.push_back(spec);
    }
  });
  embedder.set_attention(embedder.attention());  // as it was
  return specs;
}

Measured embed_by_each(Embedder& embedder, const Sequences& sequences, const std::vector<std::string>& specs,
                       const std::function<void(int64_t)>& after_batch) {
  using Clock = std::chrono::steady_clock;
  const auto n = int64_t(sequences.size());
  Measured result;
  for (size_t v = 0; v < specs.size(); ++v) result.embeddings.emplace_back(Shape{n, embedder.features()});
  std::vector<std::vector<double>> seconds(specs.size());
  for (int64_t first = 0; first < n; first += embedder.batch()) {
    const int64_t end = std::min(n, first + embedder.batch());
    const Sequences batch(sequences.begin() + first, sequences.begin() + end);
    int64_t tokens = 0;
    for (const auto& sequence : batch) tokens += int64_t(sequence.size());
    for (size_t v = 0; v < specs.size(); ++v) {
      embedder.set_attention(specs[v]);
      const auto begin = Clock::now();
      const Tensor rows = embedder.embed(batch);
      seconds[v].push_back(std::chrono::duration<double>(Clock::now() - begin).count() / double(tokens));
      Tensor part = result.embeddings[v].slice(first, end);
      part.copy_from(rows);
    }
    after_batch(end);
  }
  for (auto& each : seconds) result.seconds_per_token.push_back(median(each));
  return result;
}

Cosines cosines(const Tensor& a, const Tensor& b) {
  const int64_t n = a.size(0), features = a.size(1);
  Cosines result{NAN, NAN};
  for (int64_t i = 0; i < n; ++i) {
    const float *x = a.data<float>() + i * features, *y = b.data<float>() + i * features;
    const double cosine = std::inner_product(x, x + features, y, 0.0);
    result.mean = (i == 0 ? 0 : result.mean) + cosine / double(n);
    if (i == 0 || std::isnan(cosine) || cosine < result.least) result.least = cosine;  // a NaN stays
  }
  return result;
}

std::vector<std::vector<int32_t>> nearest_rows(const Tensor& a, const Tensor& b, int64_t k, bool same) {
  const int64_t n = a.size(0), rows = b.size(0);
  std::vector<std::vector<int32_t>> result;
  std::vector<int32_t> order(static_cast<size_t>(rows));
  for (int64_t i = 0; i < n; ++i) {
    const Tensor scores = matmul(a.slice(i, i + 1), b, false, true);
    const float* score = scores.data<float>();
    std::iota(order.begin(), order.end(), 0);
    auto end = order.end();
    if (same) std::rotate(order.begin() + i, order.begin() + i + 1, order.end()), --end;
    const auto enough = order.begin() + std::min<int64_t>(k, end - order.begin());
    // A NaN is no neighbor.
    const auto of = [score](int32_t j) { return std::isnan(score[j]) ? -2 : score[j]; };
    std::partial_sort(order.begin(), enough, end,
                      [&](int32_t x, int32_t y) { return of(x) != of(y) ? of(x) > of(y) : x < y; });
    result.emplace_back(order.begin(), enough);
  }
  return result;
}

double neighbors_kept(const std::vector<std::vector<int32_t>>& mine, const std::vector<std::vector<int32_t>>& others) {
  double sum = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto& other = others[i];
    const auto kept = std::count_if(mine[i].begin(), mine[i].end(),
                                    [&](int32_t j) { return std::count(other.begin(), other.end(), j) > 0; });
    sum += mine[i].empty() ? NAN : double(kept) / double(mine[i].size());
  }
  return sum / double(mine.size());
}

}  // namespace cairn::text_search
