// The report of text-search compare.
#include <algorithm>
#include <cmath>

#include "apps/common/format.h"
#include "apps/common/report.h"
#include "apps/common/svg.h"
#include "apps/text_search/compare.h"

namespace cairn::text_search {
namespace {

using svg::number;

// Weights are rarely large, so levels grow with them.
const std::vector<double> weight_edges{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8};
constexpr int64_t shown_queries = 16, shown_heads = 12;
constexpr size_t shown_variants = 4;

// Error against time, a line a variant through its lengths.
std::string draw_error(const Comparison& comparison) {
  svg::LineChart chart;
  chart.title = "Error of the embeddings against time";
  chart.description = "For each variant a line through its lengths. Further left is faster, further down is nearer.";
  chart.x.label = "time a token, full attention = 1", chart.x.log = true;
  chart.y.label = "1 - mean cosine with full attention", chart.y.log = true;
  const auto& first = comparison.lengths.front().variants;
  for (size_t v = 1; v < first.size(); ++v) {
    svg::Series series;
    series.name = first[v].spec, series.color = int(v - 1), series.dots = true;
    for (const LengthResult& length : comparison.lengths) {
      series.x.push_back(length.variants[v].seconds_per_token / length.variants[0].seconds_per_token);
      series.y.push_back(1 - length.variants[v].cosine.mean);
    }
    chart.series.push_back(series);
  }
  chart.y.high = 1;
  return svg::draw(chart);
}

// A dot for each length in a variant's row.
template <class F>
std::string draw_dots(const Comparison& comparison, const std::string& title, const std::string& label, F&& value) {
  svg::DotChart chart;
  chart.title = title, chart.description = "A row for each variant, a dot for each length.";
  chart.x.label = label;
  const auto& first = comparison.lengths.front().variants;
  for (const LengthResult& length : comparison.lengths) chart.series.push_back(concat(length.length, " tokens"));
  for (size_t v = 1; v < first.size(); ++v) {
    svg::DotRow row{first[v].spec, {}};
    for (const LengthResult& length : comparison.lengths) row.values.push_back(value(length.variants[v]));
    chart.rows.push_back(row);
  }
  return svg::draw(chart);
}

// One head's weights, [N, N].
const float* head_of(const Tensor& weights, int64_t head) {
  return weights.data<float>() + head * weights.size(2) * weights.size(3);
}

// Over the queries that are shown.
struct RowDistance {
  double l1 = 0, same_top = 0;  // the mean L1 distance; the share whose largest key is the same
};
RowDistance row_distance(const float* a, const float* b, int64_t queries, int64_t n) {
  RowDistance result;
  for (int64_t i = 0; i < queries; ++i, a += n, b += n) {
    for (int64_t j = 0; j < n; ++j) result.l1 += std::abs(double(a[j]) - double(b[j])) / double(queries);
    result.same_top += double(std::max_element(a, a + n) - a == std::max_element(b, b + n) - b) / double(queries);
  }
  return result;
}

void write_rows(Report& page, const AttentionRows& rows) {
  const auto n = int64_t(rows.tokens.size()), queries = std::min(n, shown_queries);
  const int64_t heads = std::min(rows.weights[0].size(1), shown_heads);
  const size_t variants = std::min(rows.specs.size(), shown_variants);
  page.section("What the heads attend to");
  page.text(concat("As in the paper's figure 8: the first ", queries, " tokens of a text of ", n,
                   " are the rows, all its tokens the columns; layer ", rows.layer + 1,
                   ". Beside full attention stand the first variants that were compared."));
  page.figure({svg::draw_levels(weight_edges, "attention weight", true), ""});
  for (int64_t head = 0; head < heads; ++head) {
    std::vector<Report::Picture> maps;
    const float* full = head_of(rows.weights[0], head);
    for (size_t v = 0; v < variants; ++v) {
      const float* weights = head_of(rows.weights[v], head);
      svg::Heatmap map;
      map.title = concat("Head ", head + 1, ", ", rows.specs[v]);
      map.rows = queries, map.columns = n;
      map.values.assign(weights, weights + queries * n);
      map.edges = weight_edges;
      map.row_labels.assign(rows.tokens.begin(), rows.tokens.begin() + queries);
      map.column_title = "key";
      std::string caption = map.title;
      if (v > 0) {
        const RowDistance distance = row_distance(weights, full, queries, n);
        caption +=
            concat(". L1 distance: ", number(distance.l1), ". Same largest key: ", number(distance.same_top, true));
      }
      maps.push_back({svg::draw(map), caption});
    }
    page.figures(maps, 2);
  }
}

}  // namespace

std::string comparison_page(const Comparison& comparison) {
  const LengthResult& longest = comparison.lengths.back();
  Report page("A pretrained model under other attention",
              concat("The embeddings that a BERT makes of ", comparison.corpus.files,
                     " files, with its attention replaced and no weight touched, beside those of full attention."));
  std::vector<Report::KeyFigure> figures;
  for (size_t v = 1; v < std::min<size_t>(longest.variants.size(), 5); ++v)
    figures.push_back({concat(longest.variants[v].spec, ", ", longest.length, " tokens"),
                       number(longest.variants[v].cosine.mean), "mean cosine with full attention"});
  page.summary(figures);
  page.section("Error and time");
  page.text(
      "A query that is clustered attends as its cluster's centroid does. Improved clustered attention gives each query "
      "its "
      "own weights on the centroid's top keys, and keeps the centroid's weights on all others; oracle-top has each "
      "query's own top keys, but nothing beyond them. Where attention is spread widely, what lies outside the top keys "
      "matters more than which keys are at the top.");
  page.figure({draw_error(comparison),
               "Error against time. A line goes through the lengths, the longest one at its left end."});
  page.figures({{draw_dots(comparison, "Mean cosine", "mean cosine with full attention",
                           [](const VariantResult& v) { return v.cosine.mean; }),
                 "Mean cosine with the embedding by full attention."},
                {draw_dots(comparison, "Neighbors kept", "share of ten nearest neighbors kept",
                           [](const VariantResult& v) { return v.neighbors_kept; }),
                 "How many of a sequence's ten nearest neighbors stay: what a search would notice."}},
               2);
  for (const LengthResult& length : comparison.lengths) {
    Report::Pairs rows;
    for (const VariantResult& v : length.variants)
      rows.emplace_back(v.spec, formatted("mean cosine %.4f, least %.4f, neighbors kept %.3f, %.1f us a token",
                                          v.cosine.mean, v.cosine.least, v.neighbors_kept, v.seconds_per_token * 1e6));
    page.table(concat(length.sequences, " sequences of ", length.length, " tokens"), rows);
  }
  write_rows(page, comparison.rows);
  page.table("What was measured", {{"model", comparison.model},
                                   {"device", comparison.device},
                                   {"threads", std::to_string(comparison.threads)},
                                   {"sequences in a batch", std::to_string(comparison.batch)},
                                   {"bytes of text", std::to_string(comparison.corpus.bytes)},
                                   {"xxh128 of the list of files", comparison.corpus.hash}});
  return page.html();
}

}  // namespace cairn::text_search
