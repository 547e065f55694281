#pragma once
// The grid of a figure as numbers, pictures and a page.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "apps/copy_task/train_options.h"

namespace cairn::copy_task {

// One training of the grid, a run in a folder of its own.
struct Cell {
  std::string attention;
  int64_t length = 0;
  std::filesystem::path folder;
  std::shared_ptr<const nlohmann::ordered_json> result{};  // null: not finished
  std::string diverged{};                                  // why there is none; empty: it did not
  std::string full{};                                      // that it is full attention; empty: it is not
};
struct Grid {
  std::vector<std::string> specs;
  std::vector<int64_t> lengths;
  std::vector<Cell> cells{};

  const Cell& cell(const std::string& spec, int64_t length) const;
  int64_t finished() const;
};

std::string cell_text(const Cell& cell);
std::string figure_text(const Grid& grid);
nlohmann::ordered_json figure_json(const Grid& grid, const nlohmann::ordered_json& configuration);
// figure.json, figure.svg and report.html, in a folder. Error: one cannot be written.
void write_figure(const Grid& grid, const TrainOptions& train, const nlohmann::ordered_json& configuration,
                  const std::filesystem::path& folder);

}  // namespace cairn::copy_task
