// copy-task figure: the paper's figure 5, a training for each variant and length.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/common/svg.h"
#include "apps/common/training_run.h"
#include "apps/common/variants.h"
#include "apps/copy_task/train.h"
#include "nn/attention/attention.h"
#include "nn/io/json.h"

namespace cairn::copy_task {
namespace {

namespace fs = std::filesystem;

// One training: a run in a folder of its own.
struct Cell {
  Settings settings;
  fs::path folder;
  std::string full{};  // full_attention_note()
  Json result{};       // null: not finished

  const std::string& attention() const { return settings.model.attention; }
  int64_t length() const { return settings.length; }
};
using Cells = std::vector<Cell>;  // by variant, then by rising length

// ---- the pictures and the page

std::string family_of(const Cell& cell) { return parse_attention(cell.attention()).variant->name; }

// Variants that differ only in their number, such as i-clustered-15 and -30, share a heatmap.
std::vector<std::string> families(const Cells& cells) {
  std::vector<std::string> found;
  for (const Cell& cell : cells) {
    const std::string family = family_of(cell);
    const bool is_new = std::find(found.begin(), found.end(), family) == found.end();
    if (is_new && family != "full") found.push_back(family);
  }
  return found;
}

// A row for each variant of the family, and one for full attention to compare with; a column for each length.
std::string heatmap(const Cells& cells, const std::string& family) {
  const std::vector<double> edges = {0.15, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99};
  svg::Cells map{family + ": masked accuracy", "A row for each variant, a column for each length.", {}, 62};
  svg::CellRow lengths{"length", {}};
  for (const Cell& cell : cells) {
    if (family_of(cell) != family && family_of(cell) != "full") continue;
    if (map.rows.empty() || map.rows.back().label != cell.attention()) map.rows.push_back({cell.attention(), {}});
    if (map.rows.size() == 1) lengths.cells.push_back({std::to_string(cell.length()), ""});
    const double accuracy = cell.result.is_null() ? NAN : number_or_nan(cell.result.at("masked_accuracy"));
    map.rows.back().cells.push_back({svg::number(accuracy, true), svg::level(accuracy, edges)});
  }
  map.rows.insert(map.rows.begin(), lengths);
  return svg::draw(map);
}

std::vector<svg::Picture> heatmaps(const Cells& cells) {
  std::vector<svg::Picture> pictures;
  for (const std::string& family : families(cells)) pictures.push_back({heatmap(cells, family), family});
  return pictures;
}

std::string name_of(const Cell& cell) { return concat(cell.attention(), ", length ", cell.length()); }

std::string result_of(const Cell& cell) {
  if (cell.result.is_null()) return "not finished";
  const auto share = [&](const char* metric) { return svg::number(number_or_nan(cell.result.at(metric)), true); };
  return concat("masked accuracy ", share("masked_accuracy"), ", accuracy ", share("accuracy"), ", ",
                cell.result.at("iterations").get<int64_t>(), " steps, ", clock_time(cell.result.at("seconds")));
}

std::string page_of(const Cells& cells, const Json& config) {
  Report page("The masked copy task by variant and length",
              "After the paper's figure 5: one training for each variant and length, with the settings below.");
  page.text(
      "Masked accuracy counts the masked symbols alone, on 1024 fresh sequences; guessing gives 10%. The paper's "
      "heatmaps show the accuracy over all symbols, where copying the input already gives 80%. In the paper, full "
      "attention solves every length, and so does i-clustered, with any number of clusters. On longer sequences, "
      "clustered needs more clusters, and lsh (Reformer) more rounds.");
  page.figures(heatmaps(cells), 2);
  Report::Rows rows;
  int64_t finished = 0;
  for (const Cell& cell : cells) {
    if (!cell.full.empty()) page.text(concat("Length ", cell.length(), ": ", cell.full, "."));
    rows.push_back({name_of(cell), result_of(cell)});
    finished += !cell.result.is_null();
  }
  page.table({concat("All trainings: ", finished, " of ", cells.size(), " finished"), ""}, rows);
  page.table({"Configuration", ""}, rows_of(config));
  return page.html();
}

Json figure_json(const Cells& cells, const Json& config) {
  Json json = {{"configuration", config}, {"cells", Json::array()}};
  for (const Cell& cell : cells) {
    Json one = {{"attention", cell.attention()}, {"length", cell.length()}};
    if (!cell.result.is_null()) one.update(cell.result);
    json["cells"].push_back(one);
  }
  return json;
}

// ---- the command

// In the order of the paper's panels.
constexpr const char* paper_variants =
    "full,i-clustered-15,i-clustered-30,i-clustered-60,i-clustered-100,clustered-15,clustered-30,clustered-60,"
    "clustered-100,lsh-1,lsh-4,lsh-8,lsh-16";
constexpr const char* quick_variants = "full,i-clustered-15,i-clustered-30,clustered-15,clustered-30,lsh-1,lsh-4";

// The configuration of a cell for copy-task train. Error (UsageError): its folder has a run with other settings.
Json config_of(const Cell& cell) {
  Settings copy = cell.settings;  // reading the run overwrites it
  SettingFields fields;
  copy.fields(fields);
  const Json config = fields.config();
  if (RunFolder::is_in(cell.folder)) fields.check_kept(config, read_run(fields, "--out", cell.folder), cell.folder);
  return config;
}

void read_result(Cell& cell) try {
  const fs::path file = cell.folder / "result.json";
  if (fs::exists(file)) cell.result = read_json(file);
  if (!cell.result.is_null()) cell.result.at("stopped").get<bool>();
  result_of(cell);  // reports damage
} catch (const Json::exception&) {
  throw damaged(cell.folder / "result.json");
}

// Trains a cell to the end, unless it is finished or another process trains it.
void train_cell(const Cell& cell, const DeviceAndDType& compute, bool quiet) try {
  const bool is_finished =
      !cell.result.is_null() &&
      (cell.result.at("stopped").get<bool>() || cell.result.at("iterations") == cell.settings.training.iterations);
  if (!is_finished)
    trained({cell.folder, config_of(cell), quiet}, [&](const Run& run) { return train(run, cell.settings, compute); });
} catch (const InUse&) {
  note("another process is training it", quiet);
} catch (const Interrupted&) {  // the loop over the cells ends
}

// Writes the whole figure, with the cells of other processes: the process that ends last writes all of it.
void write(const std::string& out, const Json& config, Cells& cells) try {
  RunFolder folder(out, config);
  for (Cell& cell : cells) read_result(cell);
  folder.write("figure.json", figure_json(cells, config).dump(1) + "\n");
  folder.write("figure.svg", svg::sheet("The masked copy task by variant and length",
                                        "Masked accuracy: a row for each variant, a column for each length.",
                                        heatmaps(cells), 3, 400, 210));
  folder.write("report.html", page_of(cells, config));
} catch (const InUse&) {  // another process writes it, perhaps without our last result
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  write(out, config, cells);
}

}  // namespace

void figure_command(CommandLine& line) {
  Settings settings;
  std::string out, variants = paper_variants, lengths = "31,63,127,255";
  line("out", out, Text::folder, "save the runs and the report in this folder", Keep::not_in_config);
  line("variants", variants, several_variants,
       "attention variants, separated by commas (listed by copy-task train --help)");
  line("lengths", lengths, Text::any, "symbols in each copy, separated by commas");
  settings.fields_of_figure(line);
  Json quick = Settings::quick_values(2500);
  quick.update({{"variants", quick_variants}, {"lengths", "31,63"}});
  line.quick(quick);
  line.footer(
      "Each training is a run in DIR/cells, which the other commands read. The same command continues after\n"
      "any interruption. Several processes with the same DIR share the work: each skips the trainings\n"
      "of the others. The command writes figure.json, figure.svg and report.html.\n\n"
      "The whole grid is 52 trainings of 5000 steps: more than a day on two cores.\n\n"
      "Examples:\n"
      "  copy-task figure --quick --out figure5      14 trainings, about 45 minutes on two cores\n"
      "  copy-task figure --out figure5 --device cuda");
  line.parse();
  check<UsageError>(!out.empty(), "expected --out with a folder; see copy-task figure --help");
  if (RunFolder::is_in(out)) line.continue_run(out);
  const std::vector<std::string> specs = split_specs(variants);
  check<UsageError>(!specs.empty(), "--variants: expected at least one");
  std::vector<int64_t> sizes;
  name_in_errors("--lengths", [&] { sizes = rising_integers(lengths, int64_t(1) << 20); });
  const DeviceAndDType compute = settings.compute.apply();
  settings.training.validate(settings.model, compute.device);
  Cells cells;
  for (const std::string& spec : specs)
    for (const int64_t length : sizes) {
      Cell& cell = cells.emplace_back(Cell{settings, fs::path(out) / "cells" / concat(spec, ",length=", length)});
      cell.settings.model.attention = spec;
      cell.settings.length = length;
      config_of(cell);  // errors come before anything runs
      const int64_t n = sequence_length(length);
      cell.full = full_attention_note(*make_attention(spec, cell.settings.transformer().attention_defaults), n, n);
    }
  write(out, line.config(), cells);
  catch_interrupts(line.quiet);
  for (size_t k = 0; k < cells.size() && !interrupted(); ++k) {
    Cell& cell = cells[k];
    note(concat(k + 1, " of ", cells.size(), ": ", name_of(cell)), line.quiet);
    train_cell(cell, compute, line.quiet);
    write(out, line.config(), cells);
    if (!interrupted()) note(result_of(cell), line.quiet);
  }
  if (interrupted()) {
    note("Saved; the same command continues", line.quiet);
    throw Interrupted();
  }
  std::string text;
  for (const Cell& cell : cells) text += name_of(cell) + ": " + result_of(cell) + "\n";
  line.tell(figure_json(cells, line.config()), text + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
}

}  // namespace cairn::copy_task
