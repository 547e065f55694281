#pragma once
// The cells of figure 5 as numbers, pictures and a page.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/artifact.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// One training, a run in a folder of its own.
struct Cell {
  std::string attention;
  int64_t length = 0;
  std::string full;                 // that it is full attention; empty: it is not
  nlohmann::ordered_json result{};  // null: not finished
  std::string trouble{};            // why there is none; empty: it was not tried yet
};

std::string cell_text(const Cell& cell);
nlohmann::ordered_json figure_json(const std::vector<Cell>& cells, const nlohmann::ordered_json& config);
// figure.json, figure.svg and report.html. Error: one cannot be written.
void write_figure(const std::vector<Cell>& cells, const Settings& settings, Artifact& folder);

}  // namespace cairn::copy_task
