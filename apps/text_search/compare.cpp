#include "apps/text_search/compare.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "apps/common/settings.h"
#include "apps/common/svg.h"
#include "core/error.h"
#include "core/ops.h"

namespace cairn::text_search {
namespace {

constexpr int64_t neighbors = 10;
constexpr double rounding = 1e-6;

}  // namespace

std::vector<std::string> variants_of(Embedder& embedder, const std::string& list) {
  std::vector<std::string> specs{"full"};
  about_option("--variants", [&] {
    for (const std::string& spec : split_specs(list)) {
      if (std::count(specs.begin(), specs.end(), spec) > 0) continue;
      embedder.set_attention(spec);  // which looks at it
      specs.push_back(spec);
    }
  });
  return specs;
}

Sequences cut_sequences(const Sequences& texts, const WordPiece& tokenizer, int64_t length, int64_t maximum) {
  Sequences all;
  const int64_t step = length - 2;
  for (const auto& text : texts)
    for (int64_t begin = 0; begin + step <= int64_t(text.size()); begin += step) {
      std::vector<int32_t>& sequence = all.emplace_back();
      sequence.push_back(tokenizer.cls());
      sequence.insert(sequence.end(), text.begin() + begin, text.begin() + begin + step);
      sequence.push_back(tokenizer.sep());
    }
  const auto found = int64_t(all.size()), n = std::min(found, maximum);
  check<UsageError>(n >= 2, "only ", found, " sequences of ", length, " tokens in ", texts.size(),
                    " files; expected at least 2: give more text, or smaller --lengths");
  Sequences kept;
  for (int64_t i = 0; i < n; ++i) kept.push_back(std::move(all[size_t(i * found / n)]));
  return kept;
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
    if (same) {
      std::rotate(order.begin() + i, order.begin() + i + 1, order.end());
      --end;
    }
    const auto enough = order.begin() + std::min<int64_t>(k, end - order.begin());
    std::partial_sort(order.begin(), enough, end,
                      [score](int32_t x, int32_t y) { return score[x] != score[y] ? score[x] > score[y] : x < y; });
    result.emplace_back(order.begin(), enough);
  }
  return result;
}

nlohmann::ordered_json difference_of(const Tensor& mine, const Tensor& full) {
  const int64_t n = full.size(0), features = full.size(1);
  const auto my_nearest = nearest_rows(mine, mine, neighbors, true),
             nearest = nearest_rows(full, full, neighbors, true);
  double sum = 0, largest = 0;
  int64_t kept = 0, all = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float *x = mine.data<float>() + i * features, *y = full.data<float>() + i * features;
    const double error = 1 - std::inner_product(x, x + features, y, 0.0);
    sum += error;
    largest = std::max(largest, error);
    const auto& wanted = nearest[size_t(i)];
    for (const int32_t j : my_nearest[size_t(i)]) kept += std::count(wanted.begin(), wanted.end(), j);
    all += int64_t(wanted.size());
  }
  const double mean = sum / double(n);
  return {{"mean_error", mean < rounding ? 0 : mean},
          {"largest_error", largest < rounding ? 0 : largest},
          {"neighbors_kept", double(kept) / double(all)}};
}

std::string comparison_picture(const nlohmann::ordered_json& rows) {
  std::map<int64_t, svg::LineChart> charts;  // by length
  for (const auto& row : rows) {
    const std::string spec = row["attention"], name = spec.substr(0, spec.find(':'));
    if (spec == "full") continue;
    svg::LineChart& chart = charts[row["length"]];
    chart.title = concat(row["length"].get<int64_t>(), " tokens");
    chart.description = "Error against time, a line for each variant.";
    chart.x.label = "microseconds a token";
    chart.y.label = "1 - mean cosine";
    chart.y.log = true;
    auto series = std::find_if(chart.series.begin(), chart.series.end(), [&](const auto& s) { return s.name == name; });
    if (series == chart.series.end()) {
      const int color = int(chart.series.size());
      series = chart.series.insert(series, {name, {}, {}, color, false, true});
    }
    series->x.push_back(row["seconds_per_token"].get<double>() * 1e6);
    series->y.push_back(row["mean_error"]);
  }
  std::vector<svg::Tile> tiles;
  for (const auto& [length, chart] : charts) tiles.push_back({svg::draw(chart), chart.title, ""});
  return svg::sheet("Embeddings by other attention: error against time",
                    "A line joins what differs in its options. Error: from the embeddings by full attention.", tiles,
                    int(std::min<size_t>(2, tiles.size())), 520, 390);
}

}  // namespace cairn::text_search
