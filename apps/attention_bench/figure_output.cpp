#include "apps/attention_bench/figure_output.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/report.h"
#include "apps/common/svg.h"
#include "core/parallel.h"
#include "nn/io/file.h"

namespace cairn::attention_bench {
namespace {

using Json = nlohmann::ordered_json;

// From where on a variant is faster than full attention; nothing where there is nothing to compare.
std::string crossover_text(const Sweep& sweep, const std::string& spec) {
  if (spec == "full" || sweep.of("full").empty()) return {};
  const double length = crossover(sweep.times("full"), sweep.times(spec)).length;
  return std::isfinite(length) ? concat("faster than full from length ", std::llround(length), " on")
                               : "never faster than full here";
}

// What was measured, in a sentence.
std::string setting(const Settings& settings) {
  return concat("One ", settings.what == What::layer ? "transformer layer" : "attention call", ", ",
                settings.both ? "forward and backward" : "forward", ", ", settings.heads, " heads of ",
                settings.head_size, ", ",
                settings.batch.empty() ? concat(settings.tokens, " positions at once") : "batch " + settings.batch,
                ", ", name(settings.place.device), ", ", threads(), " threads. The paper's figure 4.");
}

svg::LineChart chart(const Sweep& sweep, bool time) {
  svg::LineChart chart;
  chart.title = time ? "Time an element by length" : "Memory an element by length";
  chart.description = "Both axes are logarithmic; a line for each variant.";
  chart.x.label = "length", chart.x.log = true;
  for (const Point& p : sweep.measured())
    if (chart.x.ticks.empty() || double(p.problem.length) > chart.x.ticks.back())
      chart.x.ticks.push_back(double(p.problem.length));
  chart.y.label = time ? "microseconds an element" : "kilobytes an element", chart.y.log = true;
  for (size_t i = 0; i < sweep.specs.size(); ++i) {
    svg::Series series;
    series.name = sweep.specs[i], series.color = int(i), series.dots = true;
    for (const Point& p : sweep.of(sweep.specs[i])) {
      series.x.push_back(double(p.problem.length));
      series.y.push_back(time ? p.seconds_per_element() * 1e6 : p.bytes_per_element() / 1e3);
    }
    chart.series.push_back(series);
  }
  // Where a variant becomes faster than full attention, unless it is from the first length on.
  for (const std::string& spec : sweep.specs) {
    if (!time || spec == "full") continue;
    const Crossover at = crossover(sweep.times("full"), sweep.times(spec));
    if (!(at.length > chart.x.ticks.front())) continue;
    svg::Series crossing;
    crossing.dots = true, crossing.color = 7;
    crossing.x = {at.length}, crossing.y = {at.seconds * 1e6};
    chart.series.push_back(crossing);
  }
  return chart;
}

std::string sheet(const Sweep& sweep) {
  return svg::sheet(
      "Time and memory by length", setting(sweep.settings),
      {{svg::draw(chart(sweep, true)), "Time an element",
        "Gray marks: where a variant becomes faster than full attention."},
       {svg::draw(chart(sweep, false)), "Memory an element", "At the most, with operands and gradients."}},
      2, 520, 390);
}

std::string report(const Sweep& sweep) {
  Report page("Time and memory by length", setting(sweep.settings));
  page.figures({{svg::draw(chart(sweep, true)),
                 "Time an element. Gray marks: where a variant becomes faster than full attention."},
                {svg::draw(chart(sweep, false)), "Memory an element, at the most, with operands and gradients."}},
               2);
  Report::Pairs rows;
  for (const std::string& spec : sweep.specs)
    if (const std::string text = crossover_text(sweep, spec); !text.empty()) rows.emplace_back(spec, text);
  if (!rows.empty()) page.table("Crossovers", rows);
  Report::Pairs all;
  for (const Point& p : sweep.measured())
    all.emplace_back(concat(p.problem.attention, ", length ", p.problem.length),
                     concat(svg::number(p.seconds_per_element() * 1e6), " us, ", svg::number(p.bytes_per_element()),
                            " bytes an element; batch ", p.problem.batch, ", median of ", p.timing().repetitions));
  page.table("All measurements", all);
  page.table("This machine, measured at the start",
             {{"products of matrices", concat(svg::number(sweep.ceilings.flops * 1e-9), " GFLOP/s")},
              {"memory", concat(svg::number(sweep.ceilings.bytes * 1e-9), " GB/s")}});
  return page.html();
}

}  // namespace

Json figure_json(const Sweep& sweep) {
  Json json = {{"what", name_of(sweep.settings.what)},
               {"pass", sweep.settings.both ? "both" : "forward"},
               {"tokens", sweep.settings.tokens},
               {"threads", threads()},
               {"device", name(sweep.settings.place.device)},
               {"gflops", sweep.ceilings.flops * 1e-9},
               {"gigabytes_per_second", sweep.ceilings.bytes * 1e-9},
               {"points", Json::array()},
               {"crossovers", Json::object()}};
  for (const Point& p : sweep.measured())
    json["points"].push_back({{"attention", p.problem.attention},
                              {"length", p.problem.length},
                              {"batch", p.problem.batch},
                              {"median_seconds", p.timing().median},
                              {"spread", p.timing().spread},
                              {"repetitions", p.timing().repetitions},
                              {"seconds_per_element", p.seconds_per_element()},
                              {"peak_bytes", p.peak},
                              {"bytes_per_element", p.bytes_per_element()}});
  for (const std::string& spec : sweep.specs)
    if (spec != "full")
      json["crossovers"][spec] = finite_or_null(crossover(sweep.times("full"), sweep.times(spec)).length);
  return json;
}

std::string figure_text(const Sweep& sweep) {
  const auto cell = [](const std::string& text, int width) { return formatted("%*s ", width, text.c_str()); };
  std::set<int64_t> all;
  for (const Point& p : sweep.measured()) all.insert(p.problem.length);
  std::string text;
  for (bool time : {true, false}) {
    text += cell(time ? "us an element" : "kilobytes an element", -22);
    for (int64_t length : all) text += cell(concat(length), 7);
    for (const std::string& spec : sweep.specs) {
      text += concat('\n', cell(spec, -22));
      for (const Point& p : sweep.of(spec))
        text += cell(svg::number(time ? p.seconds_per_element() * 1e6 : p.bytes_per_element() * 1e-3), 7);
    }
    text += "\n\n";
  }
  for (const std::string& spec : sweep.specs)
    if (const std::string words = crossover_text(sweep, spec); !words.empty()) text += cell(spec, -22) + words + "\n";
  return text;
}

void write_figure(const Sweep& sweep, Artifact& folder) {
  folder.write("figure.json", figure_json(sweep).dump(1) + "\n");
  folder.write("figure.svg", sheet(sweep));
  folder.write("report.html", report(sweep));
}

}  // namespace cairn::attention_bench
