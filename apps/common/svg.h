#pragma once
// Pictures as inline <svg> text. Colors and fonts come from the CSS of style(), which the page contains once, so that
// pictures follow its light or dark theme. Every picture scales with its container (up to a limit), has a title for
// screen readers, and accepts any input: no data, NaN and infinity leave gaps.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::svg {

// The number of colors for series and categories (distinct for color-blind readers; they repeat), and of the levels of
// a heatmap.
inline constexpr int colors = 8, ramp = 9;

// CSS: custom properties for both themes and the classes that pictures use.
std::string style();
// Any text for HTML and XML, in elements and attributes. Control characters become spaces. Bytes that are not UTF-8,
// and U+FFFE and U+FFFF, which XML does not allow, become U+FFFD.
std::string escape(const std::string& text);
// For people: 3 significant digits, "12,500", "1.2M"; "83%" or "99.96%" with `percent`; NaN is a dash.
std::string number(double value, bool percent = false);

// ---- lines over x
struct Axis {
  std::string label;             // with its unit
  bool log = false;              // values that are not positive leave gaps
  double low = NAN, high = NAN;  // NaN: from the data
  bool percent = false;          // writes 0.5 as 50%
};
struct Series {
  std::string name;  // written at its last point; empty: not
  std::vector<double> x, y;
  int color = 0;
  bool dots = false;
  int dash = 0;  // 0: a solid line, 1: dashes, 2: points
};
// A range of x with a text.
struct Mark {
  double begin, end;
  std::string text;
  bool wrong = false;  // red; for a Strip
};
struct LineChart {
  std::string title, description;  // for screen readers and tool tips
  Axis x, y;
  std::vector<Series> series;
  std::vector<Mark> bands;  // shaded
};
std::string draw(const LineChart& chart);

// ---- a matrix
// How many of n rows or columns share a cell, so that at most `most` cells are drawn.
inline int64_t pooling(int64_t n, int64_t most = 128) { return std::max<int64_t>(1, (n + most - 1) / most); }
// A cell shows its largest value. add() takes one row at a time, so a large matrix is never in memory.
struct Heatmap {
  Heatmap(int64_t rows_of_values, int64_t columns_of_values, int64_t most = 128)
      : row_step(pooling(rows_of_values, most)),
        column_step(pooling(columns_of_values, most)),
        rows((rows_of_values + row_step - 1) / row_step),
        columns((columns_of_values + column_step - 1) / column_step),
        values(size_t(rows * columns), NAN) {}
  // Takes the `count` values of a row.
  void add(int64_t row, const float* row_values, int64_t count);

  std::string title;
  // Rising. The level of a value is the number of edges that it reaches; level 0, and so NaN, is blank.
  std::vector<double> edges;
  int64_t categories = 0;  // above 0: values are whole, from 0 to categories - 1, and each has a hue; NaN: blank
  std::vector<int32_t> row_colors;  // empty, or a category for each row of cells, shown beside it; -1: none
  int64_t row_step, column_step;    // rows and columns of values per cell
  int64_t rows, columns;            // of cells
  std::vector<float> values;        // of cells, [rows][columns]
};
std::string draw(const Heatmap& map);

// ---- a matrix over x, such as a spectrogram over time, with texts and lines at their places
struct Strip {
  Heatmap map;                         // over x.low to x.high; its title, edges and values count
  Axis x{};                            // low and high are needed
  std::vector<Mark> above{}, below{};  // above the matrix, and below the lines
  std::vector<Series> lines{};         // from 0 to 1; below the matrix
  // At the left of the marks above, the matrix, the lines and the marks below.
  std::string above_label{}, map_label{}, lines_label{}, below_label{};
};
std::string draw(const Strip& strip);

// ---- rows of cells with text
// The kind of a cell: "" has no box, "cell" an empty one; "hidden" is masked in the input, "found" a right answer
// there, "wrong" a wrong answer. category() has a color for each number (they repeat; -1: none), level() one for each
// level.
std::string category(int number);
std::string level(double value, const std::vector<double>& edges);
struct Cell {
  std::string text, kind, note{};  // the note is small text below
};
struct CellRow {
  std::string label;
  std::vector<Cell> cells;
  bool gap = false;  // above it
};
struct Cells {
  std::string title, description;
  std::vector<CellRow> rows;
  double pitch = 19;  // the width of a cell
};
std::string draw(const Cells& cells);

// ---- several pictures in one SVG file, which follows the reader's light or dark theme
struct Picture {
  std::string svg, caption;
};
// The size is that of a picture with its margins and its caption below.
std::string sheet(const std::string& title, const std::string& description, const std::vector<Picture>& pictures,
                  int columns, double picture_width = 290, double picture_height = 312);

}  // namespace cairn::svg
