// copy-task figure: the grid of the paper's figure 5, a training for each variant and length.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "apps/common/run_folder.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/figure_output.h"
#include "apps/copy_task/result_format.h"
#include "apps/copy_task/saved_run.h"
#include "nn/parallel/communicator.h"

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
            "where it was stopped, at any point. Writes figure.csv, figure.json, figure.svg and report.html.\n\n"
            "The whole grid is 52 trainings of 5000 steps: hours on a GPU, more than a day on two cores.\n"
            "Processes that mpirun starts share the trainings; they need one file system.\n\n"
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
    on_run(
        command, [this] { execute(); }, true);
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
    for (const Cell& cell : grid.cells) Training(*this, cell);  // what is refused is refused before anything runs
    check_same_on_ranks(options.configuration(), Training(*this, grid.cells[0]).settings.train.compute.device);
    if (!silent()) make_out_folder(out);
    if (!silent()) make_out_folder(fs::path(out) / "cells");
    check_shared(out);
    if (ranks().size() > 1) work_apart();
    catch_interrupts(output.quiet);

    const std::vector<size_t> own = own_cells();
    for (size_t k = 0; k < own.size() && !interrupted(); ++k) {
      Cell& cell = grid.cells[own[k]];
      note(concat(k + 1, " of ", own.size(), ranks().size() > 1 ? " of rank 0: " : ": ", cell.attention, ", length ",
                  cell.length),
           output.quiet || silent());
      try {
        Training training(*this, cell);
        training.settings.train.explain = k == 0;  // once is enough
        if (const auto result = training.run(output.quiet)) cell.result = std::make_shared<const Json>(*result);
      } catch (const DivergedError& trouble) {  // the others need not wait for it
        note(concat(cell.attention, ", length ", cell.length, ": ", trouble.what()), output.quiet);
        cell.diverged = trouble.what();
      }
      if (cell.result) note(cell_text(cell), output.quiet);
      if (!silent()) write_figure(grid, settings.train, options.configuration(), out);
    }
    const bool stopped = gather_results();
    if (ranks().size() > 1 && !silent()) write_figure(grid, settings.train, options.configuration(), out);  // of all
    if (stopped) {
      note(concat("Saved; the same command continues: ", grid.finished(), " of ", grid.cells.size(),
                  " trainings are finished"),
           output.quiet || silent());
      throw Interrupted();
    }
    if (output.json)
      print(figure_json(grid, options.configuration()).dump() + "\n");
    else
      print(figure_text(grid) + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
    for (const Cell& cell : grid.cells) check<DivergedError>(cell.diverged.empty(), cell.diverged);
  }

  // The cells that this process trains: all, or dealt out by length, the longest first, from the first rank to the last
  // and then back, so that ranks have much the same to do. The finished ones come last: they take no time.
  std::vector<size_t> own_cells() {
    std::vector<size_t> order(grid.cells.size());
    std::iota(order.begin(), order.end(), size_t(0));
    if (ranks().size() == 1) return order;
    std::string finished(grid.cells.size(), ' ');  // as rank 0 sees it
    for (size_t i = 0; i < order.size() && !silent(); ++i)
      if (Training(*this, grid.cells[i]).finished()) finished[i] = 'f';
    ranks().meet();  // that took its time
    finished = broadcast_text(ranks(), finished);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(finished[a], -grid.cells[a].length) < std::pair(finished[b], -grid.cells[b].length);
    });
    const size_t rank = size_t(ranks().rank()), size = size_t(ranks().size());
    std::vector<size_t> own;
    for (size_t k = 0; k < order.size(); ++k) {
      const size_t to = k % size;
      if ((k / size % 2 ? size - 1 - to : to) == rank) own.push_back(order[k]);
    }
    return own;
  }

  // All ranks get the results of all. Returns whether one was interrupted.
  bool gather_results() {
    Json own = {{"interrupted", interrupted()}, {"results", Json::object()}, {"diverged", Json::object()}};
    for (size_t i = 0; i < grid.cells.size(); ++i) {
      if (grid.cells[i].result) own["results"][std::to_string(i)] = *grid.cells[i].result;
      if (!grid.cells[i].diverged.empty()) own["diverged"][std::to_string(i)] = grid.cells[i].diverged;
    }
    ranks().meet();
    bool stopped = false;
    for (const std::string& text : gather_texts(ranks(), own.dump())) {
      const Json all = Json::parse(text);
      stopped = stopped || all.at("interrupted").get<bool>();
      for (const auto& [i, result] : all.at("results").items())
        grid.cells[std::stoul(i)].result = std::make_shared<const Json>(result);
      for (const auto& [i, trouble] : all.at("diverged").items()) grid.cells[std::stoul(i)].diverged = trouble;
    }
    return stopped;
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

    // Is nothing left to train? Looks without a lock: the answer may be old.
    bool finished() const {
      const std::optional<FoundCheckpoint> found = find_checkpoint_of(cell.folder, true);
      return found && finished_result(cell.folder, *found, settings.train.iterations).has_value();
    }

    // Trains what is left. Nothing where it is interrupted.
    std::optional<Json> run(bool quiet) {
      RunFolder folder(cell.folder);
      std::optional<FoundCheckpoint> found = find_checkpoint_of(cell.folder, true);
      if (found) {
        options.continue_run(found->about->at("configuration"), (found->folder / "checkpoint.json").string());
        of_a_run([&] { take(); });
        if (const auto result = finished_result(cell.folder, *found, settings.train.iterations)) return result;
        check_resumed(cell.folder, *found, settings.train);
        note(concat("continues from step ", train_state(*found).step), quiet);
      }
      const TrainResult result = train_run(options, settings.train, &folder, found, quiet);
      if (result.interrupted) return {};
      Json json = result_json(cell.attention, result);
      finish_run(folder, json);
      return std::make_optional(std::move(json));
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
