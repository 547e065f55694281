// copy-task figure: the grid of the paper's figure 5, a training for each variant and length.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/report.h"
#include "apps/common/run_folder.h"
#include "apps/common/svg.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/results.h"
#include "apps/copy_task/run_command.h"
#include "apps/copy_task/run_report.h"
#include "nn/io/file.h"

namespace cairn::copy_task {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* paper_variants =
    "full,clustered-15,clustered-30,clustered-60,clustered-100,i-clustered-15,i-clustered-30,i-clustered-60,"
    "i-clustered-100,lsh-1,lsh-4,lsh-8,lsh-16";
constexpr const char* quick_variants = "full,clustered-15,clustered-30,i-clustered-15,i-clustered-30,lsh-1,lsh-4";

// One training of the grid, a run in a folder of its own.
struct Cell {
  std::string attention;
  int64_t length = 0;
  fs::path folder;
  Json result;           // null: not finished
  std::string diverged;  // why there is none; empty: it did not
};

struct FigureCommand {
  explicit FigureCommand(CLI::App& app)
      : command(add_command(
            app, "figure", "Train the paper's figure 5: every variant at every length",
            "Each training is a run in DIR/cells, which the other commands read. The same command again continues\n"
            "where it was stopped, at any point. Writes figure.csv, figure.json, figure.svg and report.html.\n\n"
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
    about_option("--variants", [&] { specs = split_specs(variants); });
    check<UsageError>(!specs.empty(), "--variants: expected at least one");
    about_option("--lengths", [&] { all_lengths = rising_integers(lengths, int64_t(1) << 20); });
    for (const std::string& spec : specs)
      for (const int64_t length : all_lengths)
        cells.push_back({spec, length, fs::path(out) / "cells" / concat(spec, ",length=", length), {}, ""});
    for (const Cell& cell : cells) Training(*this, cell);  // what is refused is refused before anything runs
    make_out_folder(out);
    make_out_folder(fs::path(out) / "cells");
    catch_interrupts(output.quiet);

    std::string diverged;
    for (size_t i = 0; i < cells.size() && !interrupted(); ++i) {
      Cell& cell = cells[i];
      note(concat(i + 1, " of ", cells.size(), ": ", cell.attention, ", length ", cell.length), output.quiet);
      try {
        Training training(*this, cell);
        training.settings.train.explain = i == 0;  // once is enough
        cell.result = training.run(output.quiet);
      } catch (const DivergedError& trouble) {  // the others need not wait for it
        note(concat(cell.attention, ", length ", cell.length, ": ", trouble.what()), output.quiet);
        diverged = cell.diverged = trouble.what();
      }
      if (!cell.result.is_null()) note(line(cell), output.quiet);
      write_all();
    }
    if (interrupted()) {
      note(concat("Saved; the same command continues: ", finished(), " of ", cells.size(), " trainings are finished"),
           output.quiet);
      throw Interrupted();
    }
    if (output.json)
      print(as_json().dump() + "\n");
    else
      print(table() + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
    check<DivergedError>(diverged.empty(), diverged);
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

    // Trains what is left. Null where it is interrupted.
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
      const Json about = about_run(options, settings.train);
      const Keep keep{folder, about, found ? &*found : nullptr};
      Progress progress(settings.train.iterations, quiet);
      const TrainResult result = train(settings.train, progress, &keep);
      if (result.interrupted) return {};
      const Json json = result_json(cell.attention, result);
      finish_run(folder, json);
      return json;
    }

    const Cell& cell;
    Settings settings;
    Options options;
  };

  size_t finished() const {
    return size_t(std::count_if(cells.begin(), cells.end(), [](const Cell& cell) { return !cell.result.is_null(); }));
  }

  // ---- what it tells

  static double value(const Cell& cell, const char* key) {
    return cell.result.is_null() || !cell.result.at(key).is_number() ? NAN : cell.result.at(key).get<double>();
  }
  static std::string line(const Cell& cell) {
    return formatted("%-20s length %4lld  masked accuracy %.4f  accuracy %.4f  %5.0f steps  %6.0f s",
                     cell.attention.c_str(), (long long)cell.length, value(cell, "masked_accuracy"),
                     value(cell, "accuracy"), value(cell, "iterations"), value(cell, "seconds"));
  }
  std::string table() const {
    std::string text;
    for (const Cell& cell : cells)
      text +=
          (cell.result.is_null() ? concat(cell.attention, ", length ", cell.length, ": ", cell.diverged) : line(cell)) +
          "\n";
    return text;
  }

  Json as_json() const {
    Json configuration = options.configuration(), json = {{"configuration", configuration}, {"cells", Json::array()}};
    for (const Cell& cell : cells) {
      Json one = {{"attention", cell.attention}, {"length", cell.length}};
      if (!cell.result.is_null()) one.update(cell.result);
      if (!cell.diverged.empty()) one["diverged"] = cell.diverged;
      json["cells"].push_back(one);
    }
    return json;
  }

  void write_all() const {
    std::string csv = "attention,length,masked_accuracy,accuracy,loss,steps,seconds\n";
    for (const Cell& cell : cells) {
      if (cell.result.is_null()) continue;
      csv += formatted("\"%s\",%lld,%.6f,%.6f,%.6g,%.0f,%.1f\n", cell.attention.c_str(), (long long)cell.length,
                       value(cell, "masked_accuracy"), value(cell, "accuracy"), value(cell, "loss"),
                       value(cell, "iterations"), value(cell, "seconds"));
    }
    replace_file(fs::path(out) / "figure.csv", {csv});
    replace_file(fs::path(out) / "figure.json", {as_json().dump(1) + "\n"});
    replace_file(fs::path(out) / "figure.svg", {sheet()});
    replace_file(fs::path(out) / "report.html", {report()});
  }

  // A variant and its numbers, such as i-clustered at 15, 30: a heatmap of the figure.
  struct Family {
    std::string name, paper;
    std::vector<std::string> specs;
  };
  std::vector<Family> families() const {
    // In the order of the paper's panels, and what it says of them.
    std::vector<Family> result = {
        {"i-clustered", "The paper: perfect for every number of clusters and every length.", {}},
        {"clustered", "The paper: needs more clusters as sequences get longer.", {}},
        {"lsh", "The paper (its Reformer): needs more rounds as sequences get longer.", {}}};
    for (const std::string& spec : specs) {
      const std::string name = parse_attention(spec).variant->name;
      if (name == "full") continue;
      auto family = std::find_if(result.begin(), result.end(), [&](const Family& f) { return f.name == name; });
      if (family == result.end()) family = result.insert(result.end(), {name, "Not in the paper's figure.", {}});
      family->specs.push_back(spec);
    }
    std::erase_if(result, [](const Family& family) { return family.specs.empty(); });
    return result;
  }

  const Cell& cell_of(const std::string& spec, int64_t length) const {
    return *std::find_if(cells.begin(), cells.end(),
                         [&](const Cell& cell) { return cell.attention == spec && cell.length == length; });
  }

  std::string heatmap(const Family& family) const {
    svg::Heatmap map;
    std::vector<std::string> rows;
    for (const std::string& spec : specs)
      if (spec == "full") rows.push_back(spec);
    rows.insert(rows.end(), family.specs.begin(), family.specs.end());
    map.title = concat(family.name, ": masked accuracy");
    map.description = "A row for each variant, a column for each length.";
    map.rows = int64_t(rows.size()), map.columns = int64_t(all_lengths.size());
    map.edges = {0.15, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99};
    map.row_labels = rows, map.column_title = "length";
    map.write_values = map.percent = true;
    for (const int64_t length : all_lengths) map.column_labels.push_back(std::to_string(length));
    for (const std::string& spec : rows)
      for (const int64_t length : all_lengths) map.values.push_back(value(cell_of(spec, length), "masked_accuracy"));
    return svg::draw(map);
  }

  std::string sheet() const {
    std::vector<svg::Tile> tiles;
    for (const Family& family : families()) tiles.push_back({heatmap(family), family.name, ""});
    return svg::sheet("The masked copy task by variant and length",
                      "Masked accuracy: a row for each variant, a column for each length.", tiles, 3);
  }

  std::string report() const {
    const TransformerOptions& model = settings.train.model;
    Report page(
        "The masked copy task by variant and length",
        concat("One training for each cell: ", model.layers, " layers, ", model.heads, " heads of ", model.head_size,
               ", feed forward ", model.feed_forward, ", batch ", settings.train.batch, ", R-Adam ",
               svg::number(settings.train.learning_rate), ", at most ", settings.train.iterations, " steps",
               settings.train.stop_at > 0
                   ? concat(" or until masked accuracy ", svg::number(settings.train.stop_at, true))
                   : "",
               ", seed ", settings.train.seed, ". The paper's figure 5."));
    page.text(
        "Masked accuracy is that over the masked symbols alone, on 1024 fresh sequences; guessing is right 1 time in "
        "10. The paper's heatmaps show the accuracy over all symbols, of which copying the input gives 80% already. "
        "The paper's full attention solves every length.");
    std::vector<Report::Picture> pictures;
    for (const Family& family : families()) pictures.push_back({heatmap(family), family.paper});
    page.figures(pictures, pictures.size() == 1 ? 1 : 2);
    Report::Pairs rows;
    for (const Cell& cell : cells) {
      const std::string name = concat(cell.attention, ", length ", cell.length);
      if (cell.result.is_null())
        rows.emplace_back(name, cell.diverged.empty() ? "not finished" : cell.diverged);
      else
        rows.emplace_back(
            name, concat(svg::number(value(cell, "masked_accuracy"), true), " of masked symbols, ",
                         svg::number(value(cell, "accuracy"), true), " of all, after ",
                         svg::number(value(cell, "iterations")), " steps and ", clock_time(value(cell, "seconds"))));
    }
    page.table(concat("All trainings: ", finished(), " of ", cells.size(), " finished"), rows);
    return page.html();
  }

  CLI::App& command;
  Options options;
  Settings settings;
  OutputOptions output;
  std::string out, variants = paper_variants, lengths = "31,63,127,255";
  std::vector<std::string> specs;
  std::vector<int64_t> all_lengths;
  std::vector<Cell> cells;
};

}  // namespace

void define_figure(CLI::App& app) { define<FigureCommand>(app); }

}  // namespace cairn::copy_task
