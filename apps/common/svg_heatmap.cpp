#include <algorithm>
#include <cmath>
#include <cstddef>

#include "apps/common/svg.h"
#include "apps/common/svg_canvas.h"

namespace cairn::svg {
namespace {

// Each cell the largest of a square of `factor` values; NaN only where all are.
Heatmap pooled(const Heatmap& map, int64_t factor) {
  Heatmap result = map;
  result.rows = (map.rows + factor - 1) / factor, result.columns = (map.columns + factor - 1) / factor;
  result.values.assign(size_t(result.rows * result.columns), NAN);
  for (int64_t r = 0; r < map.rows; ++r)
    for (int64_t col = 0; col < map.columns; ++col) {
      double& maximum = result.values[size_t(r / factor * result.columns + col / factor)];
      const double value = map.values[size_t(r * map.columns + col)];
      if (!(maximum >= value) && !std::isnan(value)) maximum = value;
    }
  for (auto* marks : {&result.marked_rows, &result.marked_columns, &result.diagonals})
    for (int64_t& mark : *marks) mark /= factor;
  result.row_colors.clear();
  for (size_t r = 0; r < map.row_colors.size(); r += size_t(factor)) result.row_colors.push_back(map.row_colors[r]);
  return result;
}

std::vector<double> even_edges(const std::vector<double>& values) {
  double low = INFINITY, high = -INFINITY;
  for (double value : values)
    if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  std::vector<double> edges;
  for (int i = 0; i < ramp && low <= high; ++i) edges.push_back(low + (high - low) * i / ramp);
  return edges;
}

// One heatmap on its canvas.
struct Drawing {
  Heatmap map;
  bool labeled;
  double left = 10, top = 10, cell_w = 0, cell_h = 0;  // where the cells begin, and their size
  Canvas canvas{};

  int64_t levels() const { return int64_t(map.edges.size()); }
  // Of a cell; -1: not finite.
  int64_t level_of(int64_t r, int64_t col) const {
    const double value = map.values[size_t(r * map.columns + col)];
    if (!std::isfinite(value)) return -1;
    return std::upper_bound(map.edges.begin(), map.edges.end(), value) - map.edges.begin();
  }
  double x(double column) const { return left + cell_w * column; }
  double y(double row) const { return top + cell_h * row; }
  double width() const { return cell_w * double(std::max<int64_t>(1, map.columns)); }
  double height() const { return cell_h * double(std::max<int64_t>(1, map.rows)); }

  // Cells are as large as their text needs, or such that the map is 256 wide.
  void lay_out() {
    if (!map.column_title.empty()) top += 18;
    if (!map.column_labels.empty()) top += 16;
    double labels_width = 0;
    for (const std::string& label : map.row_labels) left = std::max(left, width_of(label) + 12);
    for (const std::string& label : map.column_labels) labels_width = std::max(labels_width, width_of(label) + 10);
    if (!map.row_title.empty()) left += 18;
    if (!map.row_colors.empty()) left += 10;
    const auto n = double(std::max<int64_t>(1, std::max(map.rows, map.columns)));
    cell_w = labeled ? std::max(map.percent ? 62.0 : 52.0, labels_width) : 256 / n;
    cell_h = labeled ? 34 : 256 / n;
  }

  // Runs of one level in a row are one stroke, and all strokes of a level one path.
  void draw_cells() {
    std::vector<std::string> paths(size_t(levels() + 1));
    std::string odd;
    for (int64_t r = 0; r < map.rows; ++r)
      for (int64_t col = 0, end; col < map.columns; col = end) {
        const int64_t level = level_of(r, col);
        for (end = col + 1; end < map.columns && level_of(r, end) == level;) ++end;
        if (level == 0) continue;
        (level < 0 ? odd : paths[size_t(level)]) += cat('M', col, ' ', r, 'h', end - col);
      }
    canvas.out += cat("<g transform=\"translate(", left, ' ', y(0.5), ")scale(", cell_w, ' ', cell_h, ")\">");
    for (int64_t level = 1; level <= levels(); ++level)
      canvas.path(paths[size_t(level)], cat("cells ", ramp_class(level, levels())));
    canvas.path(odd, "cells odd");
    canvas.out += "</g>";
  }

  void write_labels() {
    for (size_t i = 0; i < map.row_labels.size(); ++i)
      canvas.text(left - 7, y(double(i) + 0.5) + 4.5, map.row_labels[i], "end", "soft");
    for (size_t i = 0; i < map.column_labels.size(); ++i)
      canvas.text(x(double(i) + 0.5), top - 6, map.column_labels[i], "middle", "soft");
    canvas.text(left + width() / 2, 13, map.column_title, "middle", "soft");
    if (!map.row_title.empty())
      canvas.out +=
          cat("<g transform=\"translate(13 ", top + height() / 2,
              ")rotate(-90)\"><text class=\"soft\" text-anchor=\"middle\">", escape(map.row_title), "</text></g>");
    for (int64_t r = 0; map.write_values && r < map.rows; ++r)
      for (int64_t col = 0; col < map.columns; ++col)
        canvas.text(x(double(col) + 0.5), y(double(r) + 0.5) + 4.5,
                    number(map.values[size_t(r * map.columns + col)], map.percent), "middle",
                    level_of(r, col) * 2 > levels() ? "on" : "");
  }

  void mark() {
    std::string ticks, diagonals;
    for (int64_t r : map.marked_rows) ticks += cat('M', left - 7, ' ', y(double(r) + 0.5), "h5");
    for (int64_t col : map.marked_columns) ticks += cat('M', x(double(col) + 0.5), ' ', top - 7, "v5");
    canvas.path(ticks, "tick");
    for (int64_t d : map.diagonals) {
      const int64_t first = std::max<int64_t>(0, -d), end = std::min(map.rows, map.columns - d);
      if (first >= end) continue;
      diagonals += cat('M', x(double(first + d)), ' ', y(double(first)), "l-8 -8M", x(double(end + d)), ' ',
                       y(double(end)), "l8 8");
    }
    canvas.path(diagonals, "diagonal");
    // Runs of one color are one rectangle. Of rows that are pooled, the first counts.
    const auto color_rows = std::min(map.rows, int64_t(map.row_colors.size()));
    for (int64_t r = 0, end; r < color_rows; r = end) {
      const int32_t category = map.row_colors[size_t(r)];
      for (end = r + 1; end < color_rows && map.row_colors[size_t(end)] == category;) ++end;
      if (category >= 0) canvas.rect(left - 10, y(double(r)), 7, cell_h * double(end - r), cat('f', category % colors));
    }
  }
};

}  // namespace

std::string draw(const Heatmap& given) {
  Drawing drawing{given, !given.row_labels.empty() || !given.column_labels.empty() || given.write_values};
  Heatmap& map = drawing.map;
  map.rows = std::max<int64_t>(0, map.rows), map.columns = std::max<int64_t>(0, map.columns);
  map.values.resize(size_t(map.rows * map.columns), NAN);
  if (const int64_t factor = pooling(std::max(map.rows, map.columns)); factor > 1 && !drawing.labeled)
    map = pooled(map, factor);
  if (map.edges.empty()) map.edges = even_edges(map.values);
  drawing.lay_out();
  if (map.rows && map.columns) drawing.draw_cells();
  drawing.canvas.rect(drawing.left, drawing.top, drawing.width(), drawing.height(), "frame");
  drawing.write_labels();
  drawing.mark();
  return drawing.canvas.finish(drawing.left + drawing.width() + 10, drawing.top + drawing.height() + 10, map.title,
                               map.description);
}

}  // namespace cairn::svg
