// attention-bench figure: the paper's figure 4, time and memory of an element by the length of the sequence.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/attention_bench/commands.h"
#include "apps/attention_bench/figure_output.h"
#include "apps/common/run_folder.h"
#include "apps/common/svg.h"

namespace cairn::attention_bench {
namespace {

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
    const std::vector<std::string> specs = Settings::variants(attention);
    const bool gpu = settings.compute.device == Device::cuda;
    if (lengths.empty())
      lengths = gpu ? "1024,2048,4096,8192,16384,32768,65536,131072" : "512,1024,2048,4096,8192,16384";
    std::vector<int64_t> all;
    about_option("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 30); });
    make_out_folder(out);
    catch_interrupts(settings.output.quiet);
    Sweep sweep{settings, specs, longest, measure_ceilings(settings.compute)};

    // (A GPU is nobody else's meanwhile.)
    const int64_t passes = gpu ? 1 : std::min<int64_t>(5, settings.repetitions.maximum);
    for (int64_t pass = 1; pass <= passes && !interrupted(); ++pass)
      for (const int64_t length : all) {
        if (pass == 1) sweep.add_points(length);
        const auto now = sweep.measure_share(length, passes);
        if (!sweep.measured().empty()) write_figure(sweep, out);  // whatever happens next, this is kept
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
    if (settings.output.json) return print(figure_json(sweep).dump() + "\n");
    print(figure_text(sweep) + "Report: " + (std::filesystem::absolute(out) / "report.html").string() + "\n");
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
