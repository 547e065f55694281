// copy-task figure: the grid of the paper's figure 5, a training for each variant and length.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/run_folder.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/figure_output.h"
#include "apps/copy_task/result_format.h"
#include "apps/copy_task/saved_run.h"

namespace cairn::copy_task {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* paper_variants =
    "full,clustered-15,clustered-30,clustered-60,clustered-100,i-clustered-15,i-clustered-30,i-clustered-60,"
    "i-clustered-100,lsh-1,lsh-4,lsh-8,lsh-16";
constexpr const char* quick_variants = "full,clustered-15,clustered-30,i-clustered-15,i-clustered-30,lsh-1,lsh-4";

struct FigureCommand {
  explicit FigureCommand(CLI::App& app)
      : command(add_command(
            app, "figure", "Train the paper's figure 5: every variant at every length",
            "Each training is a run in DIR/cells, which the other commands read. The same command again continues\n"
            "where it was stopped, at any point. Writes figure.json, figure.svg and report.html.\n\n"
            "The whole grid is 52 trainings of 5000 steps: hours on a GPU, more than a day on two cores.\n\n"
            "Examples:\n"
            "  copy-task figure --quick --out figure5      14 trainings, about an hour on two cores\n"
            "  copy-task figure --out figure5 --device cuda")),
        options(&command) {
    add_path(command, "--out", out, "DIR", "keep the runs and the report in this folder");
    options.text("variants", variants, "attention variants, comma-separated");
    options.text("lengths", lengths, "symbols in w, comma-separated");
    settings.define_training(options);
    auto presets = quick_presets(2500);
    presets.insert(presets.begin(), {{"variants", quick_variants}, {"lengths", "31,63"}});
    options.presets("quick", presets);
    options.add_configuration_options();
    output.define(command);
    on_run(command, [this] { execute(); });
  }

  void execute() {
    options.read();
    options.assign();
    settings.finish();
    check<UsageError>(!out.empty(), "expected --out with a folder; see copy-task figure --help");
    about_option("--variants", [&] { grid.specs = split_specs(variants); });
    check<UsageError>(!grid.specs.empty(), "--variants: expected at least one");
    about_option("--lengths", [&] { grid.lengths = rising_integers(lengths, int64_t(1) << 20); });
    for (const std::string& spec : grid.specs)
      for (const int64_t length : grid.lengths)
        grid.cells.push_back({spec, length, fs::path(out) / "cells" / concat(spec, ",length=", length)});
    for (Cell& cell : grid.cells) {  // what is refused is refused before anything runs
      const TransformerOptions model = Training(*this, cell).settings.train.model;
      const int64_t n = sequence_length(cell.length);
      cell.full = full_attention_note(*make_attention(model.attention, model.attention_defaults), n, n);
    }
    make_out_folder(out);
    make_out_folder(fs::path(out) / "cells");
    catch_interrupts(output.quiet);

    for (size_t k = 0; k < grid.cells.size() && !interrupted(); ++k) {
      Cell& cell = grid.cells[k];
      note(concat(k + 1, " of ", grid.cells.size(), ": ", cell.attention, ", length ", cell.length), output.quiet);
      if (!cell.full.empty()) note(cell.full, output.quiet);
      try {
        Training training(*this, cell);
        training.settings.train.explain = k == 0;  // once is enough
        cell.result = std::make_shared<const Json>(training.run(output.quiet));
      } catch (const Interrupted&) {            // the loop ends
      } catch (const DivergedError& trouble) {  // the others need not wait for it
        note(concat(cell.attention, ", length ", cell.length, ": ", trouble.what()), output.quiet);
        cell.diverged = trouble.what();
      }
      if (cell.result) note(cell_text(cell), output.quiet);
      write_figure(grid, settings.train, options.configuration(), out);
    }
    if (interrupted()) {
      note(concat("Saved; the same command continues: ", grid.finished(), " of ", grid.cells.size(),
                  " trainings are finished"),
           output.quiet);
      throw Interrupted();
    }
    if (output.json)
      print(figure_json(grid, options.configuration()).dump() + "\n");
    else
      print(figure_text(grid) + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
    for (const Cell& cell : grid.cells) check<DivergedError>(cell.diverged.empty(), cell.diverged);
  }

  // The run of one cell.
  struct Training {
    Training(const FigureCommand& figure, const Cell& c) : cell(c) {
      settings.define(options);
      Json configuration = figure.options.configuration();
      configuration.erase("variants"), configuration.erase("lengths");
      configuration["attention"] = cell.attention, configuration["length"] = cell.length;
      options.load(configuration, "copy-task figure");
      take();
    }
    void take() {
      options.assign();
      about_option("--variants", [&] { settings.finish(); });
      settings.train.compute = settings.common.apply();
      check_options(settings.train);
    }

    // Trains what is left, and returns the result.
    Json run(bool quiet) {
      RunFolder folder(cell.folder);
      std::optional<FoundCheckpoint> found = find_checkpoint_of(cell.folder, true);
      if (found) {
        options.continue_run(found->about->at("configuration"), (found->folder / "checkpoint.json").string());
        of_a_run([&] { take(); });
        if (const auto result = finished_result(cell.folder, *found, settings.train.iterations)) return *result;
        check_resumed(cell.folder, *found, settings.train);
        note(concat("continues from step ", train_state(*found).step), quiet);
      }
      Communicator alone;
      const TrainResult trained = train_run(options, settings.train, &folder, found, quiet, alone);
      const Json result = result_json(cell.attention, trained);
      finish_run(folder, result);
      return result;
    }

    const Cell& cell;
    Settings settings;
    Options options;
  };

  CLI::App& command;
  Options options;
  Settings settings;
  OutputOptions output;
  std::string out, variants = paper_variants, lengths = "31,63,127,255";
  Grid grid;
};

}  // namespace

void define_figure(CLI::App& app) { define_command<FigureCommand>(app); }

}  // namespace cairn::copy_task
