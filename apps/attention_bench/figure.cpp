#include "apps/attention_bench/figure.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/common/format.h"
#include "apps/common/report.h"
#include "apps/common/svg.h"
#include "core/parallel.h"

namespace cairn::attention_bench {

using Json = nlohmann::ordered_json;

Crossover crossover(const Curve& slow, const Curve& fast) {
  double ratio_before = NAN, length_before = NAN, time_before = NAN;  // logarithms
  for (const auto& [at, seconds] : slow) {
    const auto found = fast.find(at);
    if (found == fast.end()) continue;
    const double length = std::log(at), time = std::log(seconds);
    const double ratio = std::log(found->second) - time;              // below 0: faster
    if (ratio < 0 && std::isnan(ratio_before)) return {at, seconds};  // from the first length on
    if (ratio < 0) {
      const double part = ratio_before / (ratio_before - ratio);
      return {std::exp(length_before + part * (length - length_before)),
              std::exp(time_before + part * (time - time_before))};
    }
    ratio_before = ratio, length_before = length, time_before = time;
  }
  return {};
}

std::vector<Measurement> Figure::of(const std::string& spec) const {
  std::vector<Measurement> result;
  std::copy_if(points.begin(), points.end(), std::back_inserter(result),
               [&](const Measurement& point) { return point.problem.attention == spec; });
  return result;
}

Crossover Figure::faster_than_full(const std::string& spec) const {
  const auto times = [this](const std::string& of_spec) {
    Curve curve;
    for (const Measurement& point : of(of_spec)) curve[double(point.problem.length)] = point.seconds_per_element();
    return curve;
  };
  return crossover(times("full"), times(spec));
}

Report::Pairs Figure::crossovers() const {
  Report::Pairs rows;
  for (const std::string& spec : specs) {
    if (spec == "full" || of("full").empty()) continue;
    const double length = faster_than_full(spec).length;
    rows.emplace_back(spec, std::isfinite(length) ? concat("faster than full from length ", std::llround(length), " on")
                                                  : "never faster than full here");
  }
  return rows;
}

namespace {

// What was measured, in a sentence.
std::string setting(const Settings& settings) {
  const Problem& shared = settings.shared;
  return concat("One ", shared.what == What::layer ? "transformer layer" : "attention call", ", ",
                shared.backward ? "forward and backward" : "forward", ", ", shared.heads, " heads of ",
                shared.head_size, ", ",
                settings.batch.empty() ? concat(settings.tokens, " positions at once") : "batch " + settings.batch,
                ", ", name(settings.place.device), ", ", threads(), " threads. The paper's figure 4.");
}

// Microseconds or kilobytes an element.
double value_of(const Measurement& point, bool time) {
  return time ? point.seconds_per_element() * 1e6 : point.bytes_per_element() / 1e3;
}

std::string chart(const Figure& figure, bool time) {
  svg::LineChart chart;
  chart.title = time ? "Time an element by length" : "Memory an element by length";
  chart.description = "Both axes are logarithmic; a line for each variant.";
  chart.x.label = "length", chart.x.log = true;
  std::set<double> lengths;
  for (const Measurement& point : figure.points) lengths.insert(double(point.problem.length));
  chart.x.ticks.assign(lengths.begin(), lengths.end());
  chart.y.label = time ? "microseconds an element" : "kilobytes an element", chart.y.log = true;
  for (const std::string& spec : figure.specs) {
    svg::Series& series = chart.series.emplace_back();
    series.name = spec, series.color = int(chart.series.size()) - 1, series.dots = true;
    for (const Measurement& point : figure.of(spec)) {
      series.x.push_back(double(point.problem.length));
      series.y.push_back(value_of(point, time));
    }
  }
  // Where a variant becomes faster than full attention, unless it is from the first length on.
  for (const std::string& spec : figure.specs) {
    const Crossover at = figure.faster_than_full(spec);
    if (!time || !(at.length > chart.x.ticks.front())) continue;
    svg::Series& crossing = chart.series.emplace_back();
    crossing.dots = true, crossing.color = 7;
    crossing.x = {at.length}, crossing.y = {at.seconds * 1e6};
  }
  return svg::draw(chart);
}

std::string report(const Figure& figure, const std::vector<svg::Tile>& tiles) {
  Report page("Time and memory by length", setting(figure.settings));
  std::vector<Report::Picture> pictures;
  for (const svg::Tile& tile : tiles) pictures.push_back({tile.svg, tile.title + ". " + tile.caption});
  page.figures(pictures, 2);
  if (const Report::Pairs rows = figure.crossovers(); !rows.empty()) page.table("Crossovers", rows);
  Report::Pairs all;
  for (const Measurement& point : figure.points)
    all.emplace_back(concat(point.problem.attention, ", length ", point.problem.length),
                     concat(svg::number(value_of(point, true)), " us, ", svg::number(point.bytes_per_element()),
                            " bytes an element; batch ", point.problem.batch, ", median of ", point.seconds.size()));
  page.table("All measurements", all);
  return page.html();
}

}  // namespace

Json Figure::json() const {
  Json json = {{"what", name_of(settings.shared.what)},
               {"pass", settings.shared.backward ? "both" : "forward"},
               {"tokens", settings.tokens},
               {"threads", threads()},
               {"device", name(settings.place.device)},
               {"points", Json::array()},
               {"crossovers", Json::object()}};
  for (const Measurement& point : points) json["points"].push_back(point.json());
  for (const std::string& spec : specs)
    if (spec != "full") json["crossovers"][spec] = finite_or_null(faster_than_full(spec).length);
  return json;
}

void Figure::write(Artifact& folder) const {
  const std::vector<svg::Tile> tiles = {
      {chart(*this, true), "Time an element", "Gray marks: where a variant becomes faster than full attention."},
      {chart(*this, false), "Memory an element", "At the most, with operands and gradients."}};
  folder.write("figure.json", json().dump(1) + "\n");
  folder.write("figure.svg", svg::sheet("Time and memory by length", setting(settings), tiles, 2, 520, 390));
  folder.write("report.html", report(*this, tiles));
}

}  // namespace cairn::attention_bench
