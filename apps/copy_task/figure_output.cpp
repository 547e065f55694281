#include "apps/copy_task/figure_output.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/common/svg.h"
#include "nn/io/file.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

double value(const Cell& cell, const char* key) {
  return cell.result && cell.result->at(key).is_number() ? cell.result->at(key).get<double>() : NAN;
}

// A variant and its numbers, such as i-clustered at 15, 30: a heatmap of the figure.
struct Family {
  std::string name, paper;
  std::vector<std::string> specs;
};
std::vector<Family> families(const Grid& grid) {
  // In the order of the paper's panels, and what it says of them.
  std::vector<Family> result = {
      {"i-clustered", "The paper: perfect for every number of clusters and every length.", {}},
      {"clustered", "The paper: needs more clusters as sequences get longer.", {}},
      {"lsh", "The paper (its Reformer): needs more rounds as sequences get longer.", {}}};
  for (const std::string& spec : grid.specs) {
    const std::string name = parse_attention(spec).variant->name;
    if (name == "full") continue;
    auto family = std::find_if(result.begin(), result.end(), [&](const Family& f) { return f.name == name; });
    if (family == result.end()) family = result.insert(result.end(), {name, "Not in the paper's figure.", {}});
    family->specs.push_back(spec);
  }
  std::erase_if(result, [](const Family& family) { return family.specs.empty(); });
  return result;
}

std::string heatmap(const Grid& grid, const Family& family) {
  svg::Heatmap map;
  std::vector<std::string> rows;
  for (const std::string& spec : grid.specs)
    if (spec == "full") rows.push_back(spec);
  rows.insert(rows.end(), family.specs.begin(), family.specs.end());
  map.title = concat(family.name, ": masked accuracy");
  map.description = "A row for each variant, a column for each length.";
  map.rows = int64_t(rows.size()), map.columns = int64_t(grid.lengths.size());
  map.edges = {0.15, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99};
  map.row_labels = rows, map.column_title = "length";
  map.write_values = map.percent = true;
  for (const int64_t length : grid.lengths) map.column_labels.push_back(std::to_string(length));
  for (const std::string& spec : rows)
    for (const int64_t length : grid.lengths) map.values.push_back(value(grid.cell(spec, length), "masked_accuracy"));
  return svg::draw(map);
}

std::string sheet(const Grid& grid) {
  std::vector<svg::Tile> tiles;
  for (const Family& family : families(grid)) tiles.push_back({heatmap(grid, family), family.name, ""});
  return svg::sheet("The masked copy task by variant and length",
                    "Masked accuracy: a row for each variant, a column for each length.", tiles, 3);
}

std::string report(const Grid& grid, const TrainOptions& train) {
  const TransformerOptions& model = train.model;
  Report page("The masked copy task by variant and length",
              concat("One training for each cell: ", model.layers, " layers, ", model.heads, " heads of ",
                     model.head_size, ", feed forward ", model.feed_forward, ", batch ", train.batch, ", R-Adam ",
                     svg::number(train.learning_rate), ", at most ", train.iterations, " steps",
                     train.stop_at > 0 ? concat(" or until masked accuracy ", svg::number(train.stop_at, true)) : "",
                     ", seed ", train.seed, ". The paper's figure 5."));
  page.text(
      "Masked accuracy is that over the masked symbols alone, on 1024 fresh sequences; guessing is right 1 time in "
      "10. The paper's heatmaps show the accuracy over all symbols, of which copying the input gives 80% already. "
      "The paper's full attention solves every length.");
  std::vector<Report::Picture> pictures;
  for (const Family& family : families(grid)) pictures.push_back({heatmap(grid, family), family.paper});
  page.figures(pictures, pictures.size() == 1 ? 1 : 2);
  for (const Cell& cell : grid.cells)
    if (!cell.full.empty()) page.text(concat("Length ", cell.length, ": ", cell.full, "."));
  Report::Pairs rows;
  for (const Cell& cell : grid.cells) {
    const std::string name = concat(cell.attention, ", length ", cell.length);
    if (!cell.result)
      rows.emplace_back(name, cell.diverged.empty() ? "not finished" : cell.diverged);
    else
      rows.emplace_back(
          name, concat(svg::number(value(cell, "masked_accuracy"), true), " of masked symbols, ",
                       svg::number(value(cell, "accuracy"), true), " of all, after ",
                       svg::number(value(cell, "iterations")), " steps and ", clock_time(value(cell, "seconds"))));
  }
  page.table(concat("All trainings: ", grid.finished(), " of ", grid.cells.size(), " finished"), rows);
  return page.html();
}

}  // namespace

const Cell& Grid::cell(const std::string& spec, int64_t length) const {
  return *std::find_if(cells.begin(), cells.end(),
                       [&](const Cell& cell) { return cell.attention == spec && cell.length == length; });
}

int64_t Grid::finished() const {
  return std::count_if(cells.begin(), cells.end(), [](const Cell& cell) { return bool(cell.result); });
}

std::string cell_text(const Cell& cell) {
  return formatted("%-20s length %4lld  masked accuracy %.4f  accuracy %.4f  %5.0f steps  %6.0f s",
                   cell.attention.c_str(), (long long)cell.length, value(cell, "masked_accuracy"),
                   value(cell, "accuracy"), value(cell, "iterations"), value(cell, "seconds"));
}
std::string figure_text(const Grid& grid) {
  std::string text;
  for (const Cell& cell : grid.cells)
    text +=
        (!cell.result ? concat(cell.attention, ", length ", cell.length, ": ", cell.diverged) : cell_text(cell)) + "\n";
  return text;
}

Json figure_json(const Grid& grid, const Json& configuration) {
  Json json = {{"configuration", configuration}, {"cells", Json::array()}};
  for (const Cell& cell : grid.cells) {
    Json one = {{"attention", cell.attention}, {"length", cell.length}};
    if (cell.result) one.update(*cell.result);
    if (!cell.diverged.empty()) one["diverged"] = cell.diverged;
    json["cells"].push_back(one);
  }
  return json;
}

void write_figure(const Grid& grid, const TrainOptions& train, const Json& configuration, const fs::path& folder) {
  replace_file(folder / "figure.json", {figure_json(grid, configuration).dump(1) + "\n"});
  replace_file(folder / "figure.svg", {sheet(grid)});
  replace_file(folder / "report.html", {report(grid, train)});
}

}  // namespace cairn::copy_task
