// attention-bench figure: draws the paper's figure 4, time and memory per token by sequence length.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/attention_bench/settings.h"
#include "apps/common/program.h"
#include "apps/common/report.h"
#include "apps/common/run_folder.h"
#include "apps/common/svg.h"
#include "apps/common/variants.h"
#include "core/parallel.h"
#include "nn/io/json.h"

namespace cairn::attention_bench {
namespace {

namespace fs = std::filesystem;

struct Crossover {
  double length = NAN, seconds = NAN;
};

// Microseconds or kilobytes per token.
double value_of(const Json& point, bool time) {
  return time ? point.at("seconds_per_element").get<double>() * 1e6 : point.at("bytes_per_element").get<double>() / 1e3;
}

struct Figure {
  // Declares the settings, and takes those that the user gave.
  explicit Figure(CommandLine& command_line) : line(command_line) {
    settings.repetitions.seconds = 4;
    line("out", out, Text::folder, "folder to write to", Keep::not_in_config);
    line("from", from, Text::file,
         "draw what a figure.json holds, perhaps from another machine, without measuring; settings come from it",
         Keep::not_in_config);
    line("attention", attention, several_variants, "attention variants, comma-separated");
    line("lengths", lengths, Text::any, "tokens per sequence, comma-separated, ascending");
    line("longest", longest, {0.001, 1e6},
         "skip a variant at lengths where a repetition would take more seconds than this");
    settings.fields(line);
    line.footer(
        "Writes figure.json, figure.svg and report.html. The defaults are the paper's (appendix C.1):\n"
        "one transformer layer, forward and backward. At each length, the variants are measured in turn, so that\n"
        "a slow moment of the machine affects all alike.\n"
        "Run the same command again to continue a stopped figure at the first missing length.\n\n"
        "Examples:\n  attention-bench figure --out figure4 --lengths 512,1024,2048,4096\n"
        "  attention-bench figure --out again --from figure4/figure.json");
    line.parse();
  }

  // ---- measuring

  void run() try {
    check<UsageError>(!out.empty(), "expected --out with a folder; see attention-bench figure --help");
    if (!from.empty()) return draw_again();
    if (RunFolder::is_in(out)) line.continue_run(out);
    settings.finish();
    used_threads = threads();
    specs = split_specs(attention);
    check<UsageError>(!specs.empty(), "--attention: expected a variant");
    check<UsageError>(!settings.shared.is_product(),
                      "--what: a product has no attention to compare; see attention-bench run");
    for (const std::string& spec : specs)
      check<UsageError>(settings.shared.what != What::cluster || make_attention(spec)->clusters() > 0,
                        "--what cluster: attention '", spec, "' has no clusters");
    std::vector<int64_t> all;
    name_in_errors("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 30); });
    RunFolder folder(out, line.config());
    catch_interrupts(line.quiet);
    std::map<int64_t, Json> kept = kept_points(folder);
    for (const int64_t length : all) {
      const std::vector<std::string> here = not_too_slow(length);
      if (!kept.count(length)) {
        kept[length] = measured(here, length);
        if (interrupted()) break;
        folder.append(
            {{"length", length}, {"of", provenance(settings.shared.compute.device)}, {"points", kept[length]}});
      }
      std::string times = concat("length ", length, ", us/token:");
      for (const Json& point : kept[length]) {
        times += concat(" ", point.at("attention").get<std::string>(), " ", svg::number(value_of(point, true)));
        points.push_back(point);
      }
      note(times, line.quiet);
    }
    if (!points.empty()) write(folder);
    if (interrupted()) {
      note(concat("interrupted; finished lengths are saved in ", out, ", and the same command continues"), line.quiet);
      throw Interrupted();
    }
    tell_result();
  } catch (const Json::exception&) {
    throw damaged(fs::path(out) / "metrics.jsonl");
  }

  void tell_result() const {
    std::string text;
    for (const auto& row : crossovers()) text += concat(row[0], ": ", row[1], '\n');
    line.tell(figure(), text + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
  }

  void draw_again() {
    read_figure();
    check<UsageError>(RunFolder::lines_in(out).empty(), "--out ", out,
                      ": has a figure that was measured there; choose another folder");
    RunFolder folder(out, line.config());
    write(folder);
    tell_result();
  }

  // Takes settings and points of the file --from.
  void read_figure() try {
    Json all = read_json(from);
    const auto expect = [&](const Json& object, const char* key, bool (Json::*is_right)() const noexcept) {
      check<DataError>(object.is_object() && object.contains(key) && (object.at(key).*is_right)(), "--from ", from,
                       ": expected a figure.json of attention-bench; '", key, "' is missing or of another type");
    };
    expect(all, "points", &Json::is_array);
    points = all.at("points").get<std::vector<Json>>();
    for (const Json& point : points) {
      expect(point, "attention", &Json::is_string);
      for (const char* key : {"length", "batch", "repetitions", "seconds_per_element", "bytes_per_element"})
        expect(point, key, &Json::is_number);
    }
    check<DataError>(!points.empty(), "--from ", from, ": there are no points");
    all.erase("points");
    all.erase("crossovers");
    line.take(all, from);
    settings.shared.compute.device = settings.compute.device.value_or(Device::cpu);
    used_threads = settings.compute.threads;
    specs = split_specs(attention);
  } catch (const UsageError& error) {
    throw DataError(concat("--from ", error.what()));
  }

  // The variants of which a repetition at this length should take at most --longest, by their last measurement.
  std::vector<std::string> not_too_slow(int64_t length) const {
    std::vector<std::string> found;
    for (const std::string& spec : specs) {
      const std::vector<Json> before = points_of(spec);
      // Assumes quadratic time, as of full attention: four times as long at twice the length.
      const double ratio = before.empty() ? 0 : double(length) / before.back().at("length").get<double>();
      if (before.empty() || ratio * ratio * before.back().at("median_seconds").get<double>() <= longest)
        found.push_back(spec);
      else
        note(concat(spec, " is skipped at length ", length, ": it would take over --longest ", longest, " s"),
             line.quiet);
    }
    return found;
  }

  Json measured(const std::vector<std::string>& here, int64_t length) const {
    std::vector<Problem> problems;
    for (const std::string& spec : here) problems.push_back(settings.problem(spec, length, line.quiet));
    return measure(problems, settings.repetitions);
  }

  // The points of earlier runs by length, without those of another build or processor, which are measured again.
  std::map<int64_t, Json> kept_points(const RunFolder& folder) const {
    std::map<int64_t, Json> kept;
    bool others = false;
    for (const Json& measured : folder.lines())
      if (measured.value("of", Json()) == provenance(settings.shared.compute.device))
        kept[measured.at("length").get<int64_t>()] = measured.at("points");
      else
        others = true;
    if (others) note(concat(out, ": lengths that another build or processor measured are measured again"), line.quiet);
    return kept;
  }

  // ---- results

  std::vector<Json> points_of(const std::string& spec) const {
    std::vector<Json> found;
    std::copy_if(points.begin(), points.end(), std::back_inserter(found),
                 [&](const Json& point) { return point.at("attention") == spec; });
    return found;
  }

  // The length from which a variant is faster than full attention, and the time there. Interpolates linearly in log-log
  // between lengths that both have. The first of these lengths if it is faster from the start; NaN if never.
  Crossover faster_than_full(const std::string& spec) const {
    const std::vector<Json> all = points_of(spec);
    double ratio_before = NAN, length_before = NAN, time_before = NAN;  // logarithms
    for (const Json& slow : points_of("full")) {
      const auto fast = std::find_if(all.begin(), all.end(),
                                     [&](const Json& point) { return point.at("length") == slow.at("length"); });
      if (fast == all.end()) continue;
      const double at = slow.at("length"), seconds = slow.at("seconds_per_element");
      const double length = std::log(at), time = std::log(seconds);
      const double ratio = std::log(fast->at("seconds_per_element").get<double>()) - time;  // below 0: it is faster
      if (ratio < 0 && std::isnan(ratio_before)) return {at, seconds};  // at the first length already
      if (ratio < 0) {
        const double part = ratio_before / (ratio_before - ratio);
        return {std::exp(length_before + part * (length - length_before)),
                std::exp(time_before + part * (time - time_before))};
      }
      ratio_before = ratio, length_before = length, time_before = time;
    }
    return {};
  }

  // The same in words. Empty without full attention to compare with.
  Report::Rows crossovers() const {
    Report::Rows rows;
    for (const std::string& spec : specs) {
      if (spec == "full" || points_of("full").empty()) continue;
      const double length = faster_than_full(spec).length;
      rows.push_back({spec, std::isfinite(length) ? concat("faster than full from length ", std::llround(length), " on")
                                                  : "never faster than full at these lengths"});
    }
    return rows;
  }

  // The setting in a sentence.
  std::string setting() const {
    const Problem& shared = settings.shared;
    return concat(
        "One ", shared.what == What::layer ? "transformer layer" : "attention call", ", ",
        shared.backward ? "forward and backward" : "forward", ". Heads: ", shared.heads, " of size ", shared.head_size,
        "; ", settings.batch.empty() ? concat("tokens per batch: ", settings.tokens) : "batch: " + settings.batch,
        "; device: ", name(shared.compute.device), "; threads: ", used_threads, ". See the paper's figure 4.");
  }

  Json figure() const {
    Json all = line.config();
    all["device"] = name(settings.shared.compute.device);
    all["tokens"] = settings.tokens;
    all["threads"] = used_threads;
    all["points"] = points;
    all["crossovers"] = Json::object();
    for (const std::string& spec : specs)
      if (spec != "full") all["crossovers"][spec] = finite_or_null(faster_than_full(spec).length);
    return all;
  }

  std::string chart(bool time) const {
    svg::LineChart chart;
    chart.title = time ? "Time per token by length" : "Memory per token by length";
    chart.description = "Both axes are logarithmic. Each variant has a line.";
    chart.x.label = "length", chart.x.log = true;
    chart.y.label = time ? "microseconds per token" : "kilobytes per token", chart.y.log = true;
    for (const std::string& spec : specs) {
      svg::Series& series = chart.series.emplace_back();
      series.name = spec, series.color = int(chart.series.size()) - 1, series.dots = true;
      for (const Json& point : points_of(spec)) {
        series.x.push_back(point.at("length").get<double>());
        series.y.push_back(value_of(point, time));
      }
    }
    // A dot where a variant becomes faster than full attention, unless it is faster from the first length on.
    for (const std::string& spec : specs) {
      const Crossover at = faster_than_full(spec);
      if (!time || !(at.length > points.front().at("length").get<double>())) continue;
      svg::Series& crossing = chart.series.emplace_back();
      crossing.dots = true, crossing.color = 7;
      crossing.x = {at.length}, crossing.y = {at.seconds * 1e6};
    }
    return svg::draw(chart);
  }

  void write(RunFolder& folder) const {
    const std::vector<svg::Picture> pictures = {
        {chart(true), "Time per token. Gray dots: a variant becomes faster than full attention."},
        {chart(false), "Memory per token: the peak, with operands and gradients."}};
    const std::string title = "Time and memory by length";
    folder.write("figure.json", figure().dump(1) + "\n");
    folder.write("figure.svg", svg::sheet(title, setting(), pictures, 2, 520, 390));
    Report page(title, setting());
    page.figures(pictures, 2);
    if (const Report::Rows rows = crossovers(); !rows.empty()) page.table({"Crossovers", ""}, rows);
    Report::Rows all;
    for (const Json& point : points)
      all.push_back(
          {concat(point.at("attention").get<std::string>(), ", length ", point.at("length").dump()),
           concat(svg::number(value_of(point, true)), " us/token, ", svg::number(point.at("bytes_per_element")),
                  " bytes/token; batch ", point.at("batch").dump(), ", repetitions ", point.at("repetitions").dump())});
    page.table({"All measurements", ""}, all);
    folder.write("report.html", page.html());
  }

  Settings settings;
  std::string out, from, attention = "full,clustered-100,i-clustered-100,lsh-1,lsh-4";
  std::string lengths = "512,1024,2048,4096,8192,16384,32768";
  double longest = 60;
  int64_t used_threads = 0;
  std::vector<std::string> specs;
  std::vector<Json> points;  // results of measure(), sorted by length, then in the order of the variants
  CommandLine& line;
};

}  // namespace

void figure_command(CommandLine& line) { Figure(line).run(); }

}  // namespace cairn::attention_bench
