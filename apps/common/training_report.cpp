#include "apps/common/training_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/training_state.h"

namespace cairn {

using Json = nlohmann::ordered_json;

std::string count(int64_t n, const std::string& what) {
  return concat(svg::number(double(n)), " ", what, n == 1 ? "" : "s");
}

double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

Report::Pairs pairs(const Json& object) {
  Report::Pairs result;
  for (const auto& [key, value] : object.items())
    result.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return result;
}

namespace {

// A number in the lines of metrics.jsonl over the steps.
svg::Series curve_of(const Artifact& run, const std::string& pointer) try {
  svg::Series curve;
  const Json::json_pointer at(pointer);
  for (const Json& line : run.lines()) {
    if (!line.contains(at)) continue;
    curve.x.push_back(line.at("step"));
    curve.y.push_back(number_or_nan(line.at(at)));
  }
  return curve;
} catch (const Json::exception&) {
  throw DataError(concat(run / "metrics.jsonl", ": not the metrics of a run of ", program()));
}

// A curve of fewer points: the mean of every `points` consecutive ones, at the last of them.
svg::Series means(const svg::Series& all, size_t points) {
  svg::Series result;
  for (size_t begin = 0; begin < all.x.size(); begin += points) {
    const size_t end = std::min(all.x.size(), begin + points);
    const double sum = std::accumulate(all.y.begin() + long(begin), all.y.begin() + long(end), 0.0);
    result.x.push_back(all.x[end - 1]);
    result.y.push_back(sum / double(end - begin));
  }
  return result;
}

}  // namespace

svg::Series evaluation_curve(const Artifact& run, const std::string& metric, const std::string& name, int color) {
  svg::Series curve = curve_of(run, "/evaluation/" + metric);
  curve.name = name;
  curve.color = color;
  curve.dots = true;
  return curve;
}

void write_curves(Report& page, const Artifact& run, int64_t steps, const std::string& unit,
                  svg::LineChart evaluations) {
  page.section("Learning");
  const svg::Series losses = curve_of(run, "/loss");
  const size_t points = (losses.x.size() + 299) / 300;
  svg::LineChart loss;
  loss.title = "Training loss";
  loss.description =
      concat("Training loss on a log scale. Each point is a mean over ", count(int64_t(points), "step"), ".");
  loss.y.label = unit;
  loss.y.log = true;
  loss.series = {means(losses, points)};
  loss.bands = evaluations.bands;
  std::vector<Report::Picture> pictures;
  for (svg::LineChart* chart : {&loss, &evaluations}) {
    chart->x.label = "training step";
    chart->x.low = 0;
    if (steps > 0) chart->x.high = double(steps);
    if (chart == &loss || !chart->series[0].x.empty()) pictures.push_back({svg::draw(*chart), chart->description});
  }
  page.figures(pictures, 2);
}

std::vector<Observation> observe_sequence(const std::vector<MultiHeadAttention*>& layers, int64_t n,
                                          const std::function<void()>& forward) {
  // A layer keeps about four arrays of this many elements.
  const double elements = std::pow(double(n), 2) * double(layers[0]->heads);
  if (elements <= double(1 << 25)) return observe(layers, forward);
  forward();
  return {};
}

void write_attention_maps(Report& page, const std::string& attention, const std::vector<Observation>& layers,
                          const std::vector<ShownHead>& heads, const std::string& reading, svg::Heatmap frame,
                          bool with_clusters) {
  frame.edges = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8};  // weights are rarely large
  page.figure({svg::draw_levels(frame.edges, "attention weight"), reading});
  std::vector<Report::Picture> maps;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const Observation& seen = layers[layer];
    const int64_t head = heads[layer].head, n = seen.weights.size(2);
    const Tensor labels = with_clusters ? seen.choices["labels"] : Tensor();
    const auto add = [&](const std::string& caption, const Tensor& weights) {
      svg::Heatmap map = frame;
      map.title = concat("Layer ", layer + 1, ", head ", head + 1, ": ", caption);
      for (int64_t i = 0; i < n; ++i) map.add(i, weights.data<float>() + (head * n + i) * n, n);
      for (int64_t i = 0; labels.defined() && i < n; i += map.row_step)
        map.row_colors.push_back(labels.data<int32_t>()[head * n + i]);
      maps.push_back({svg::draw(map), map.title});
    };
    add(concat(attention, ". ", heads[layer].caption), seen.weights);
    if (attention != "full") add("full attention", seen.full);
  }
  page.figures(maps, 4);
}

void write_origin(Report& page, const Artifact& run) {
  page.section("How this run was made");
  page.table("Configuration", pairs(Artifact::config("--out", run.folder())));
  if (const auto saved = newest_checkpoint(run.folder()))
    page.table("Provenance", pairs(saved->about->at("provenance")));
}

}  // namespace cairn
