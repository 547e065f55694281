#include "apps/copy_task/figure.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/common/svg.h"
#include "nn/attention/attention.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<Cell>;

double value(const Cell& cell, const char* key) {
  return cell.result.contains(key) && cell.result[key].is_number() ? cell.result[key].get<double>() : NAN;
}

// What differs between cells, each once and in their order.
template <class T>
std::vector<T> all_of(const Cells& cells, T Cell::*member) {
  std::vector<T> found;
  for (const Cell& cell : cells)
    if (std::find(found.begin(), found.end(), cell.*member) == found.end()) found.push_back(cell.*member);
  return found;
}

const Cell& cell_of(const Cells& cells, const std::string& spec, int64_t length) {
  return *std::find_if(cells.begin(), cells.end(),
                       [&](const Cell& cell) { return cell.attention == spec && cell.length == length; });
}

int64_t finished(const Cells& cells) {
  return std::count_if(cells.begin(), cells.end(), [](const Cell& cell) { return !cell.result.is_null(); });
}

// A variant and its numbers, such as i-clustered at 15, 30: a heatmap of the figure.
struct Family {
  std::string name, paper;
  std::vector<std::string> specs;
};
std::vector<Family> families(const Cells& cells) {
  // In the order of the paper's panels, and what it says of them.
  std::vector<Family> result = {
      {"i-clustered", "The paper: perfect for every number of clusters and every length.", {}},
      {"clustered", "The paper: needs more clusters as sequences get longer.", {}},
      {"lsh", "The paper (its Reformer): needs more rounds as sequences get longer.", {}}};
  for (const std::string& spec : all_of(cells, &Cell::attention)) {
    const std::string name = parse_attention(spec).variant->name;
    if (name == "full") continue;
    auto family = std::find_if(result.begin(), result.end(), [&](const Family& f) { return f.name == name; });
    if (family == result.end()) family = result.insert(result.end(), {name, "Not in the paper's figure.", {}});
    family->specs.push_back(spec);
  }
  std::erase_if(result, [](const Family& family) { return family.specs.empty(); });
  return result;
}

std::string heatmap(const Cells& cells, const Family& family) {
  const std::vector<double> edges = {0.15, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99};
  const auto specs = all_of(cells, &Cell::attention);
  const auto lengths = all_of(cells, &Cell::length);
  std::vector<std::string> rows;
  for (const std::string& spec : specs)
    if (spec == "full") rows.push_back(spec);
  rows.insert(rows.end(), family.specs.begin(), family.specs.end());
  svg::Cells map{concat(family.name, ": masked accuracy"), "A row for each variant, a column for each length.", {}, 62};
  map.rows.push_back({"length", {}});
  for (const int64_t length : lengths) map.rows[0].cells.push_back({std::to_string(length), ""});
  for (const std::string& spec : rows) {
    map.rows.push_back({spec, {}});
    for (const int64_t length : lengths) {
      const double accuracy = value(cell_of(cells, spec, length), "masked_accuracy");
      map.rows.back().cells.push_back({svg::number(accuracy, true), svg::level(accuracy, edges)});
    }
  }
  return svg::draw(map);
}

std::string sheet(const Cells& cells) {
  std::vector<svg::Tile> tiles;
  for (const Family& family : families(cells)) tiles.push_back({heatmap(cells, family), family.name, ""});
  return svg::sheet("The masked copy task by variant and length",
                    "Masked accuracy: a row for each variant, a column for each length.", tiles, 3, 400, 210);
}

std::string report(const Cells& cells, const Settings& settings) {
  const TransformerOptions& model = settings.model;
  const TrainingOptions& training = settings.training;
  Report page(
      "The masked copy task by variant and length",
      concat("One training for each cell: ", model.layers, " layers, ", model.heads, " heads of ", model.head_size,
             ", feed forward ", model.feed_forward, ", batch ", settings.batch, ", R-Adam ",
             svg::number(training.learning_rate), ", at most ", training.iterations, " steps",
             settings.stop_at > 0 ? concat(" or until masked accuracy ", svg::number(settings.stop_at, true)) : "",
             ", seed ", settings.compute.seed, ". The paper's figure 5."));
  page.text(
      "Masked accuracy is that over the masked symbols alone, on 1024 fresh sequences; guessing is right 1 time in "
      "10. The paper's heatmaps show the accuracy over all symbols, of which copying the input gives 80% already. "
      "The paper's full attention solves every length.");
  std::vector<Report::Picture> pictures;
  for (const Family& family : families(cells)) pictures.push_back({heatmap(cells, family), family.paper});
  page.figures(pictures, pictures.size() == 1 ? 1 : 2);
  for (const Cell& cell : cells)
    if (!cell.full.empty()) page.text(concat("Length ", cell.length, ": ", cell.full, "."));
  Report::Pairs rows;
  for (const Cell& cell : cells) {
    const std::string name = concat(cell.attention, ", length ", cell.length);
    if (cell.result.is_null())
      rows.emplace_back(name, cell.trouble.empty() ? "not finished" : cell.trouble);
    else
      rows.emplace_back(
          name, concat(svg::number(value(cell, "masked_accuracy"), true), " of masked symbols, ",
                       svg::number(value(cell, "accuracy"), true), " of all, after ",
                       svg::number(value(cell, "iterations")), " steps and ", clock_time(value(cell, "seconds"))));
  }
  page.table(concat("All trainings: ", finished(cells), " of ", cells.size(), " finished"), rows);
  return page.html();
}

}  // namespace

std::string cell_text(const Cell& cell) {
  if (cell.result.is_null()) return concat(cell.attention, ", length ", cell.length, ": ", cell.trouble);
  return formatted("%-20s length %4lld  masked accuracy %.4f  accuracy %.4f  %5.0f steps  %6.0f s",
                   cell.attention.c_str(), (long long)cell.length, value(cell, "masked_accuracy"),
                   value(cell, "accuracy"), value(cell, "iterations"), value(cell, "seconds"));
}

Json figure_json(const Cells& cells, const Json& config) {
  Json json = {{"configuration", config}, {"cells", Json::array()}};
  for (const Cell& cell : cells) {
    Json one = {{"attention", cell.attention}, {"length", cell.length}};
    if (!cell.result.is_null()) one.update(cell.result);
    if (!cell.trouble.empty()) one["trouble"] = cell.trouble;
    json["cells"].push_back(one);
  }
  return json;
}

void write_figure(const Cells& cells, const Settings& settings, Artifact& folder) {
  folder.write("figure.json", figure_json(cells, Artifact::config("--out", folder.folder())).dump(1) + "\n");
  folder.write("figure.svg", sheet(cells));
  folder.write("report.html", report(cells, settings));
}

}  // namespace cairn::copy_task
