// attention-bench figure: the paper's figure 4, time and memory of an element by the length of the sequence.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/attention_bench/commands.h"
#include "apps/attention_bench/figure_output.h"
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
            "forward and backward. All lengths are measured in several passes,\n"
            "so that a slow moment of the machine hits no point alone, and all variants of a length in turn. A length\n"
            "whose attention would take more than --longest seconds a repetition is left out for that variant.\n"
            "The same command again continues a figure that was stopped.\n\n"
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
    if (Artifact::is_in(out)) continue_run(Artifact::config("--out", out), (fs::path(out) / "config.json").string());
    const Json as_given = config();
    settings.finish(quiet);
    const std::vector<std::string> specs = split_specs(attention);
    check<UsageError>(!specs.empty(), "--attention: expected a variant");
    std::vector<int64_t> all;
    about_option("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 30); });
    Artifact folder(out, as_given, Resume::if_there);
    for (const std::string& spec : specs)
      for (const int64_t n : all) note_if_full(*make_attention(spec), n, n, quiet);
    catch_interrupts(quiet);
    Sweep sweep{settings, specs, longest, measure_ceilings(settings.place), quiet};
    measure_all(sweep, all, folder);
    if (interrupted()) {
      note(sweep.measured().empty()
               ? "interrupted; nothing was measured yet"
               : concat("interrupted; ", out, " has what was measured until then, and the same command continues"),
           quiet);
      throw Interrupted();
    }
    write_figure(sweep, folder);
    const Json result = figure_json(sweep);
    tell(result, figure_text(sweep) + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
  }

  // Measures what the folder does not have yet.
  void measure_all(Sweep& sweep, const std::vector<int64_t>& all, Artifact& folder) const {
    const Json kept = kept_shares(folder);
    // (A GPU is nobody else's meanwhile.)
    const bool gpu = settings.place.device == Device::cuda;
    const int64_t passes = gpu ? 1 : std::min<int64_t>(5, settings.repetitions.maximum);
    for (int64_t pass = 1; pass <= passes; ++pass)
      for (const int64_t length : all) {
        if (interrupted()) return;
        if (pass == 1) sweep.add_points(length);
        const std::string place = concat("pass ", pass, ", length ", length);
        if (kept.contains(place)) {
          sweep.add(kept.at(place));
          continue;
        }
        const Json share = sweep.measure_share(length, passes);
        sweep.add(share);
        if (!sweep.measured().empty()) write_figure(sweep, folder);  // whatever happens next, this is kept
        if (interrupted()) return;
        folder.append({{"place", place}, {"of", made_with()}, {"share", share}});
        tell_share(sweep, length, concat("pass ", pass, " of ", passes));
      }
  }

  void tell_share(const Sweep& sweep, int64_t length, std::string line) const {
    line += concat(", length ", length, ", us an element:");
    for (const Point& p : sweep.measured())
      if (p.problem.length == length)
        line += concat(" ", p.problem.attention, " ", svg::number(p.seconds_per_element() * 1e6));
    note(line, quiet);
  }

  // What a share must have been measured with to be part of this figure.
  Json made_with() const {
    Json with = provenance(std::string(name(settings.place.device)));
    with.erase("time");
    return with;
  }

  // What was measured before, by its place. What another build or processor measured is measured again.
  Json kept_shares(const Artifact& folder) const {
    Json kept = Json::object();
    bool others = false;
    for (const Json& line : folder.lines())
      if (line.value("of", Json()) == made_with())
        kept[line.at("place").get<std::string>()] = line.at("share");
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
