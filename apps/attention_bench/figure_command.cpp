// attention-bench figure: the paper's figure 4, time and memory of an element by the length of the sequence.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/attention_bench/commands.h"
#include "apps/attention_bench/settings.h"
#include "apps/common/format.h"
#include "apps/common/options.h"
#include "apps/common/report.h"
#include "apps/common/run_folder.h"
#include "apps/common/svg.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "nn/attention/attention.h"
#include "nn/io/file.h"

namespace cairn::attention_bench {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// One measured point.
struct Point {
  Problem problem;
  std::vector<double> seconds{};  // of each repetition
  int64_t peak = 0;

  Timing timing() const { return Timing(seconds); }
  double seconds_per_element() const { return timing().median / double(problem.tokens()); }
  double bytes_per_element() const { return double(peak) / double(problem.tokens()); }
};

struct FigureCommand {
  explicit FigureCommand(CLI::App& app)
      : command(add_command(
            app, "figure", "Draw the paper's figure 4: time and memory by length",
            "Writes figure.csv, figure.json, figure.svg and report.html. All lengths are measured in several passes,\n"
            "so that a slow moment of the machine hits no point alone, and all variants of a length in turn. A length\n"
            "whose attention would take more than --longest seconds a repetition is left out for that variant.\n\n"
            "Example:\n  attention-bench figure --out figure4 --lengths 512,1024,2048,4096")),
        options(&command) {
    add_path(command, "--out", out, "DIR", "write into this folder");
    options.text("attention", attention, "variants, comma-separated");
    options.text("lengths", lengths, "comma-separated; by default 512 to 16384, on a GPU 1024 to 131072");
    options.real("longest", longest, 0.001, 1e6, "seconds of one repetition beyond which a variant goes no further");
    settings.repetitions.seconds = 4;
    settings.define(command, options, "attention");
    on_run(command, [this] { execute(); });
  }

  void execute() {
    options.read();
    options.assign();
    settings.finish();
    check<UsageError>(!out.empty(), "expected --out with a folder; see attention-bench figure --help");
    std::vector<std::string> specs;
    about_option("--attention", [&] {
      specs = split_specs(attention);
      for (const std::string& spec : specs) make_attention(spec);
    });
    const bool gpu = settings.compute.device == Device::cuda;
    if (lengths.empty())
      lengths = gpu ? "1024,2048,4096,8192,16384,32768,65536,131072" : "512,1024,2048,4096,8192,16384";
    std::vector<int64_t> all;
    about_option("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 30); });
    make_out_folder(out);
    catch_interrupts(settings.output.quiet);
    ceilings = measure_ceilings(settings.compute);

    // (A GPU is nobody else's meanwhile.)
    const int64_t passes = gpu ? 1 : std::min<int64_t>(5, settings.repetitions.maximum);
    for (int64_t pass = 1; pass <= passes && !interrupted(); ++pass)
      for (const int64_t length : all) {
        if (pass == 1) add_points(specs, length);
        const auto now = points_of_length(length);
        measure_once_more(now, passes);
        if (!measured().empty()) write_all(specs);  // whatever happens next, this is kept
        if (interrupted()) break;
        std::string line = concat("pass ", pass, " of ", passes, ", length ", length, ", us an element:");
        for (const Point* p : now)
          line += concat(" ", p->problem.attention, " ", svg::number(p->seconds_per_element() * 1e6));
        note(line, settings.output.quiet);
      }
    if (interrupted()) {
      note(concat("interrupted; ", out, " has what was measured until then"), settings.output.quiet);
      throw Interrupted();
    }
    Json json = as_json(specs);
    if (settings.output.json) return print(json.dump() + "\n");
    print(summary(specs) + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
  }

  // The points of a length, but of variants that would take too long.
  void add_points(const std::vector<std::string>& specs, int64_t length) {
    for (const std::string& spec : specs) {
      if (too_long.count(spec)) continue;
      const auto before = of(spec);
      // Full attention takes four times as long at twice the length.
      if (!before.empty() && 4 * before.back().timing().median > longest) {
        note(concat(spec, " is left out from length ", length, " on: --longest ", longest), settings.output.quiet);
        too_long.insert(spec);
      } else {
        points.push_back({settings.problem(spec, length)});
      }
    }
  }
  std::vector<Point*> points_of_length(int64_t length) {
    std::vector<Point*> result;
    for (Point& p : points)
      if (p.problem.length == length) result.push_back(&p);
    return result;
  }
  // The share of one of `passes` in the repetitions.
  void measure_once_more(const std::vector<Point*>& now, int64_t passes) {
    std::vector<Problem> problems;
    for (const Point* p : now) problems.push_back(p->problem);
    const Repetitions& all = settings.repetitions;
    const auto share = [&](int64_t n) { return (n + passes - 1) / passes; };
    const auto found = measure(problems, settings.compute, uint64_t(settings.common.seed),
                               {share(all.maximum), share(all.minimum), all.seconds / double(passes)});
    for (size_t i = 0; i < now.size(); ++i) {
      now[i]->seconds.insert(now[i]->seconds.end(), found[i].seconds.begin(), found[i].seconds.end());
      now[i]->peak = std::max(now[i]->peak, found[i].peak_bytes);
    }
  }

  std::vector<Point> measured() const {
    std::vector<Point> result;
    std::copy_if(points.begin(), points.end(), std::back_inserter(result),
                 [](const Point& p) { return !p.seconds.empty(); });
    return result;
  }
  std::vector<Point> of(const std::string& spec) const {
    std::vector<Point> result = measured();
    std::erase_if(result, [&](const Point& p) { return p.problem.attention != spec; });
    return result;
  }

  // Where a variant becomes faster than full attention, on straight lines between the logarithms; NaN: it does not.
  struct Crossover {
    double length = NAN, seconds_per_element = NAN;
  };
  Crossover crossover(const std::string& spec) const {
    double ratio_before = NAN, length_before = NAN, time_before = NAN;  // logarithms
    const std::vector<Point> full = of("full"), others = of(spec);
    for (const Point& slow : full)
      for (const Point& fast : others) {
        if (slow.problem.length != fast.problem.length) continue;
        const double length = std::log(double(slow.problem.length)), time = std::log(slow.seconds_per_element());
        const double ratio = std::log(fast.seconds_per_element()) - time;  // below 0: faster
        if (ratio < 0 && std::isnan(ratio_before))                         // from the first length on
          return {double(slow.problem.length), slow.seconds_per_element()};
        if (ratio < 0) {
          const double part = ratio_before / (ratio_before - ratio);
          return {std::exp(length_before + part * (length - length_before)),
                  std::exp(time_before + part * (time - time_before))};
        }
        ratio_before = ratio, length_before = length, time_before = time;
      }
    return {};
  }

  // How time per element grows from length 2048 on: the slope of its logarithm over the length's, by least squares, and
  // the largest over the smallest. NaN where there are fewer than two lengths.
  struct Growth {
    double slope = NAN, range = NAN;
  };
  Growth growth(const std::string& spec) const {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, minimum = INFINITY, maximum = 0;
    for (const Point& p : of(spec)) {
      if (p.problem.length < 2048) continue;
      const double time = p.seconds_per_element(), a = std::log(double(p.problem.length)), b = std::log(time);
      n += 1, x += a, y += b, xx += a * a, xy += a * b;
      minimum = std::min(minimum, time), maximum = std::max(maximum, time);
    }
    if (n < 2) return {};
    return {(n * xy - x * y) / (n * xx - x * x), maximum / minimum};
  }
  // The same and the crossover, for people.
  std::string growth_text(const std::string& spec) const {
    const Growth g = growth(spec);
    std::string text;
    if (std::isfinite(g.slope))
      text = concat("time an element grows as length^", svg::number(g.slope), " from 2048 on, largest / smallest ",
                    svg::number(g.range));
    if (spec == "full" || of("full").empty()) return text;
    const double cross = crossover(spec).length;
    return concat(text, text.empty() ? "" : "; ",
                  std::isfinite(cross) ? concat("faster than full from length ", std::llround(cross), " on")
                                       : "never faster than full here");
  }

  Json as_json(const std::vector<std::string>& specs) const {
    Json json = {{"what", settings.what},
                 {"pass", settings.pass},
                 {"tokens", settings.tokens},
                 {"threads", threads()},
                 {"device", name(settings.compute.device)},
                 {"gflops", ceilings.flops * 1e-9},
                 {"gigabytes_per_second", ceilings.bytes * 1e-9},
                 {"points", Json::array()},
                 {"crossovers", Json::object()},
                 {"slopes", Json::object()},
                 {"largest_over_smallest", Json::object()}};
    for (const Point& p : measured())
      json["points"].push_back({{"attention", p.problem.attention},
                                {"length", p.problem.length},
                                {"batch", p.problem.batch},
                                {"median_seconds", p.timing().median},
                                {"spread", p.timing().spread},
                                {"repetitions", p.timing().repetitions},
                                {"seconds_per_element", p.seconds_per_element()},
                                {"peak_bytes", p.peak},
                                {"bytes_per_element", p.bytes_per_element()}});
    for (const std::string& spec : specs) {
      const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(); };
      if (spec != "full") json["crossovers"][spec] = number(crossover(spec).length);
      const Growth g = growth(spec);
      json["slopes"][spec] = number(g.slope);
      json["largest_over_smallest"][spec] = number(g.range);
    }
    return json;
  }

  std::string summary(const std::vector<std::string>& specs) const {
    const auto cell = [](const std::string& text, int width) { return formatted("%*s ", width, text.c_str()); };
    std::set<int64_t> all;
    for (const Point& p : measured()) all.insert(p.problem.length);
    std::string text;
    for (bool time : {true, false}) {
      text += cell(time ? "us an element" : "kilobytes an element", -22);
      for (int64_t length : all) text += cell(concat(length), 7);
      for (const std::string& spec : specs) {
        text += concat('\n', cell(spec, -22));
        for (const Point& p : of(spec))
          text += cell(svg::number(time ? p.seconds_per_element() * 1e6 : p.bytes_per_element() * 1e-3), 7);
      }
      text += "\n\n";
    }
    for (const std::string& spec : specs)
      if (const std::string words = growth_text(spec); !words.empty()) text += cell(spec, -22) + words + "\n";
    return text;
  }

  void write_all(const std::vector<std::string>& specs) const {
    std::string csv = "attention,what,pass,length,batch,median_seconds,spread,repetitions,peak_bytes\n";
    for (const Point& p : measured()) {
      const Timing timing = p.timing();
      csv +=
          formatted("\"%s\",%s,%s,%lld,%lld,%.9g,%.3g,%lld,%lld\n", p.problem.attention.c_str(), settings.what.c_str(),
                    p.problem.backward ? "both" : "forward", (long long)p.problem.length, (long long)p.problem.batch,
                    timing.median, timing.spread, (long long)timing.repetitions, (long long)p.peak);
    }
    replace_file(fs::path(out) / "figure.csv", {csv});
    replace_file(fs::path(out) / "figure.json", {as_json(specs).dump(1) + "\n"});
    replace_file(fs::path(out) / "figure.svg", {sheet(specs)});
    replace_file(fs::path(out) / "report.html", {report(specs)});
  }

  // What was measured, in a sentence.
  std::string setting() const {
    return concat("One ", settings.what == "layer" ? "transformer layer" : "attention call", ", ",
                  settings.pass == "both" ? "forward and backward" : "forward", ", ", settings.heads, " heads of ",
                  settings.head_size, ", ",
                  settings.batch.empty() ? concat(settings.tokens, " positions at once") : "batch " + settings.batch,
                  ", ", name(settings.compute.device), ", ", threads(), " threads. The paper's figure 4.");
  }

  std::string sheet(const std::vector<std::string>& specs) const {
    return svg::sheet(
        "Time and memory by length", setting(),
        {{svg::draw(chart(specs, true)), "Time an element",
          "Gray marks: where a variant becomes faster than full attention."},
         {svg::draw(chart(specs, false)), "Memory an element", "At the most, with operands and gradients."}},
        2, 520, 390);
  }

  svg::LineChart chart(const std::vector<std::string>& specs, bool time) const {
    svg::LineChart chart;
    chart.title = time ? "Time an element by length" : "Memory an element by length";
    chart.description = "Both axes are logarithmic; a line for each variant.";
    chart.x.label = "length", chart.x.log = true;
    for (const Point& p : measured())
      if (chart.x.ticks.empty() || double(p.problem.length) > chart.x.ticks.back())
        chart.x.ticks.push_back(double(p.problem.length));
    chart.y.label = time ? "microseconds an element" : "kilobytes an element", chart.y.log = true;
    for (size_t i = 0; i < specs.size(); ++i) {
      svg::Series series;
      series.name = specs[i], series.color = int(i), series.dots = true;
      for (const Point& p : of(specs[i])) {
        series.x.push_back(double(p.problem.length));
        series.y.push_back(time ? p.seconds_per_element() * 1e6 : p.bytes_per_element() / 1e3);
      }
      chart.series.push_back(series);
    }
    // Where a variant becomes faster than full attention, unless it is from the first length on.
    for (const std::string& spec : specs) {
      if (!time || spec == "full") continue;
      const Crossover at = crossover(spec);
      if (!(at.length > chart.x.ticks.front())) continue;
      svg::Series crossing;
      crossing.dots = true, crossing.color = 7;
      crossing.x = {at.length}, crossing.y = {at.seconds_per_element * 1e6};
      chart.series.push_back(crossing);
    }
    return chart;
  }

  std::string report(const std::vector<std::string>& specs) const {
    Report page("Time and memory by length", setting());
    page.figures({{svg::draw(chart(specs, true)),
                   "Time an element. Gray marks: where a variant becomes faster than full attention."},
                  {svg::draw(chart(specs, false)), "Memory an element, at the most, with operands and gradients."}},
                 2);
    Report::Pairs rows;
    for (const std::string& spec : specs) rows.emplace_back(spec, growth_text(spec));
    page.table("Growth and crossovers", rows);
    Report::Pairs all;
    for (const Point& p : measured())
      all.emplace_back(concat(p.problem.attention, ", length ", p.problem.length),
                       concat(svg::number(p.seconds_per_element() * 1e6), " us, ", svg::number(p.bytes_per_element()),
                              " bytes an element; batch ", p.problem.batch, ", median of ", p.timing().repetitions));
    page.table("All measurements", all);
    page.table("This machine, measured at the start",
               {{"products of matrices", concat(svg::number(ceilings.flops * 1e-9), " GFLOP/s")},
                {"memory", concat(svg::number(ceilings.bytes * 1e-9), " GB/s")}});
    return page.html();
  }

  CLI::App& command;
  Options options;
  Settings settings;
  std::string out, attention = "full,clustered-100,i-clustered-100,lsh-1,lsh-4", lengths;
  double longest = 60;
  Ceilings ceilings;
  std::vector<Point> points;       // by length, in the order of the variants; some may not be measured yet
  std::set<std::string> too_long;  // variants that go no further
};

}  // namespace

void define_figure(CLI::App& app) {
  static std::unique_ptr<FigureCommand> command;
  command = std::make_unique<FigureCommand>(app);
}

}  // namespace cairn::attention_bench
