// attention-bench figure: the paper's figure 4, time and memory of an element by the length of the sequence.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/attention_bench/commands.h"
#include "apps/attention_bench/figure_output.h"
#include "apps/common/run_folder.h"
#include "apps/common/svg.h"
#include "nn/io/file.h"

namespace cairn::attention_bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct FigureCommand {
  explicit FigureCommand(CLI::App& app)
      : command(add_command(
            app, "figure", "Draw the paper's figure 4: time and memory by length",
            "Writes figure.csv, figure.json, figure.svg and report.html. All lengths are measured in several passes,\n"
            "so that a slow moment of the machine hits no point alone, and all variants of a length in turn. A length\n"
            "whose attention would take more than --longest seconds a repetition is left out for that variant.\n"
            "The same command again continues a figure that was stopped.\n\n"
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
    const std::vector<std::string> specs = Settings::variants(attention);
    const bool gpu = settings.compute.device == Device::cuda;
    if (lengths.empty())
      lengths = gpu ? "1024,2048,4096,8192,16384,32768,65536,131072" : "512,1024,2048,4096,8192,16384";
    std::vector<int64_t> all;
    about_option("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 30); });
    const fs::path folder = fs::path(out) / ".shares";  // what was measured, until the figure is whole
    make_out_folder(out);
    make_out_folder(folder);
    catch_interrupts(settings.output.quiet);
    Sweep sweep{settings, specs, longest, measure_ceilings(settings.compute)};

    for (const std::string& spec : specs)
      for (const int64_t n : all) note_if_full(*make_attention(spec), n, n, settings.output.quiet);

    // (A GPU is nobody else's meanwhile.)
    const int64_t passes = gpu ? 1 : std::min<int64_t>(5, settings.repetitions.maximum);
    for (int64_t pass = 1; pass <= passes && !interrupted(); ++pass) {
      Json shares = kept_shares(folder, pass, all, sweep);
      for (const Json& share : shares) sweep.add(share);
      for (size_t i = 0; i < all.size() && !interrupted(); ++i) {
        const std::string length = std::to_string(all[i]);
        if (shares.contains(length)) continue;
        if (pass == 1) sweep.add_points(all[i]);
        const Json share = sweep.measure_share(all[i], passes);
        sweep.add(share);
        if (!sweep.measured().empty()) write_figure(sweep, out);  // whatever happens next, this is kept
        if (interrupted()) break;
        replace_file(folder / share_name(pass, length), {Json({{"of", made_with()}, {"share", share}}).dump() + "\n"});
        std::string line = concat("pass ", pass, " of ", passes, ", length ", length, ", us an element:");
        for (const Point& p : sweep.measured())
          if (p.problem.length == all[i])
            line += concat(" ", p.problem.attention, " ", svg::number(p.seconds_per_element() * 1e6));
        note(line, settings.output.quiet);
      }
    }
    if (interrupted()) {
      note(sweep.measured().empty()
               ? "interrupted; nothing was measured yet"
               : concat("interrupted; ", out, " has what was measured until then, and the same command continues"),
           settings.output.quiet);
      throw Interrupted();
    }
    remove_shares(folder, passes, all);
    if (settings.output.json) return print(figure_json(sweep).dump() + "\n");
    print(figure_text(sweep) + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
  }

  static std::string share_name(int64_t pass, const std::string& length) {
    return concat("pass=", pass, ",length=", length, ".json");
  }

  // Removes the figure's own files, and the folder if nothing else is in it.
  static void remove_shares(const fs::path& folder, int64_t passes, const std::vector<int64_t>& of) {
    std::error_code ignored;
    for (int64_t pass = 1; pass <= passes; ++pass)
      for (const int64_t n : of) fs::remove(folder / share_name(pass, std::to_string(n)), ignored);
    fs::remove(folder, ignored);
  }

  // What a share must have been measured with to be part of this figure.
  Json made_with() const {
    Json with = provenance(std::string(name(settings.compute.device)));
    with.erase("time");
    with["configuration"] = options.configuration();
    return with;
  }

  // What was measured in a pass before the figure was stopped, by length. What this figure cannot use is measured
  // again.
  Json kept_shares(const fs::path& folder, int64_t pass, const std::vector<int64_t>& of, const Sweep& sweep) const {
    Json shares = Json::object();
    bool others = false;
    for (const int64_t n : of) {
      const std::string length = std::to_string(n);
      const fs::path file = folder / share_name(pass, length);
      if (!is_there(file)) continue;
      const Json kept = Json::parse(read_file(file), nullptr, false);
      if (usable(kept, sweep))
        shares[length] = kept.at("share");
      else
        others = true;
    }
    if (others && pass == 1)
      note(
          concat(folder.string(), " has what was measured with other settings or on another processor, or is damaged: ",
                 "that is measured again"),
          settings.output.quiet);
    return shares;
  }

  // Is it a whole share, measured as this figure measures? `sweep` is a copy to try it on.
  bool usable(const Json& kept, Sweep sweep) const {
    if (!kept.is_object() || kept.value("of", Json()) != made_with() || !kept.contains("share")) return false;
    try {
      sweep.add(kept.at("share"));
    } catch (const DataError&) {
      return false;
    }
    return true;
  }

  CLI::App& command;
  Options options;
  Settings settings;
  std::string out, attention = "full,clustered-100,i-clustered-100,lsh-1,lsh-4", lengths;
  double longest = 60;
};

}  // namespace

void define_figure(CLI::App& app) { define_command<FigureCommand>(app); }

}  // namespace cairn::attention_bench
