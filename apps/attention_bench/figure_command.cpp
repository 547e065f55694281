// attention-bench figure: the paper's figure 4, time and memory of an element by the length of the sequence.
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/attention_bench/figure.h"
#include "apps/common/artifact.h"
#include "apps/common/program.h"
#include "apps/common/svg.h"
#include "nn/attention/attention.h"

namespace cairn::attention_bench {
namespace {

namespace fs = std::filesystem;

struct FigureCommand : Command {
  FigureCommand()
      : Command(
            "figure", "Draw the paper's figure 4: time and memory by length",
            "Writes figure.json, figure.svg and report.html. By default the setting of the paper's C.1: a transformer "
            "layer,\n"
            "forward and backward. All variants of a length are measured in turn, so that a slow moment of the "
            "machine\n"
            "hits all alike. A length whose attention would take more than --longest seconds a repetition is left out\n"
            "for that variant.\n"
            "The same command again continues a figure that was stopped, from the first length that it lacks.\n\n"
            "Example:\n  attention-bench figure --out figure4 --lengths 512,1024,2048,4096") {
    settings.repetitions.seconds = 4;
  }

  void fields(SettingFields& f) override {
    f("out", out, Text::folder, "write into this folder", Keep::no);
    f("attention", attention, Text::variants, "variants, comma-separated");
    f("lengths", lengths, Text::any, "of a sequence, comma-separated");
    f("longest", longest, {0.001, 1e6}, "seconds of one repetition beyond which a variant goes no further");
    settings.fields(f);
  }

  void run(Communicator&) override {
    check<UsageError>(!out.empty(), "expected --out with a folder; see attention-bench figure --help");
    if (Artifact::is_in(out)) continue_run(out);
    settings.finish(quiet);
    Figure figure{settings, split_specs(attention)};
    check<UsageError>(!figure.specs.empty(), "--attention: expected a variant");
    std::vector<int64_t> all;
    name_in_errors("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 30); });
    Artifact folder(out, config(), Resume::if_there);
    catch_interrupts(quiet);
    std::map<int64_t, Json> points = kept_points(folder);
    for (const int64_t length : all) {
      const std::vector<std::string> specs = not_too_slow(figure, length);
      if (!points.count(length)) {
        points[length] = measured(specs, length);
        if (interrupted()) break;
        folder.append({{"length", length}, {"of", provenance(settings.place.device)}, {"points", points[length]}});
      }
      add(figure, length, points[length]);
    }
    if (!figure.points.empty()) figure.write(folder);
    if (interrupted()) {
      note(concat("interrupted; ", out, " has the lengths that were finished, and the same command continues"), quiet);
      throw Interrupted();
    }
    std::string text;
    for (const auto& [spec, words] : figure.crossovers()) text += concat(spec, ": ", words, '\n');
    tell(figure.json(), text + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
  }

  // The variants of which one repetition at this length does not take too long, by what was measured before.
  std::vector<std::string> not_too_slow(const Figure& figure, int64_t length) const {
    std::vector<std::string> specs;
    for (const std::string& spec : figure.specs) {
      note_if_full(*make_attention(spec), length, length, quiet);
      const std::vector<Measurement> before = figure.of(spec);
      // Full attention takes four times as long at twice the length.
      const double ratio = before.empty() ? 0 : double(length) / double(before.back().problem.length);
      if (before.empty() || ratio * ratio * before.back().median() <= longest)
        specs.push_back(spec);
      else
        note(concat(spec, " is left out at length ", length, ": --longest ", longest), quiet);
    }
    return specs;
  }

  // The points of a length: [{"attention", "batch", "seconds", "peak_bytes"}].
  Json measured(const std::vector<std::string>& specs, int64_t length) const {
    std::vector<Problem> problems;
    for (const std::string& spec : specs) problems.push_back(settings.problem(spec, length));
    Json points = Json::array();
    for (const Measurement& point :
         measure(problems, settings.place, uint64_t(settings.compute.seed), settings.repetitions))
      points.push_back({{"attention", point.problem.attention},
                        {"batch", point.problem.batch},
                        {"seconds", point.seconds},
                        {"peak_bytes", point.peak_bytes}});
    return points;
  }

  void add(Figure& figure, int64_t length, const Json& points) const {
    std::string line = concat("length ", length, ", us an element:");
    for (const Json& one : points) {
      Measurement& point = figure.points.emplace_back();
      point.problem.attention = one.at("attention").get<std::string>();
      point.problem.length = length;
      point.problem.batch = one.at("batch").get<int64_t>();
      point.seconds = one.at("seconds").get<std::vector<double>>();
      point.peak_bytes = one.at("peak_bytes").get<int64_t>();
      line += concat(" ", point.problem.attention, " ", svg::number(point.seconds_per_element() * 1e6));
    }
    note(line, quiet);
  }

  // The points that were measured before, by length. What another build or processor measured is measured again.
  std::map<int64_t, Json> kept_points(const Artifact& folder) const {
    std::map<int64_t, Json> kept;
    bool others = false;
    for (const Json& line : folder.lines())
      if (line.value("of", Json()) == provenance(settings.place.device))
        kept[line.at("length").get<int64_t>()] = line.at("points");
      else
        others = true;
    if (others) note(concat(out, ": what another build or processor measured is measured again"), quiet);
    return kept;
  }

  Settings settings;
  std::string out, attention = "full,clustered-100,i-clustered-100,lsh-1,lsh-4";
  std::string lengths = "512,1024,2048,4096,8192,16384,32768";
  double longest = 60;
};

}  // namespace

std::unique_ptr<Command> make_figure() { return std::make_unique<FigureCommand>(); }

}  // namespace cairn::attention_bench
