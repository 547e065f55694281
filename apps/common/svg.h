#pragma once
// Pictures as inline <svg> text. Colors and fonts come from the CSS of style(), put once into the page that holds the
// pictures, so that they follow its light or dark theme. Every picture scales with its container (up to a limit), names
// itself to screen readers, and takes any input: no data, NaN and infinity leave gaps.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::svg {

// Colors by number for series and categories (distinct for color-blind readers; they repeat), and a ramp.
inline constexpr int colors = 8, ramp = 9;

// CSS: custom properties for both themes and the classes that pictures use.
std::string style();
// Text for HTML and XML, in elements and attributes. Control characters become spaces.
std::string escape(const std::string& text);
// For people: 3 significant digits, "12,500", "1.2M", "83%" or "99.96%" with `percent`; NaN is a
// dash.
std::string number(double value, bool percent = false);

// ---- lines over x
struct Axis {
  std::string label;             // with its unit
  bool log = false;              // values that are not positive leave gaps
  double low = NAN, high = NAN;  // NaN: from the data
  std::vector<double> ticks;     // empty: round numbers
  bool percent = false;          // writes 0.5 as 50%
};
struct Series {
  std::string name;  // written at its last point; empty: not
  std::vector<double> x, y;
  int color = 0;
  bool faint = false, dots = false;
};
// A shaded range of x, and a dashed line at one y.
struct Band {
  double low, high;
  std::string caption;
};
struct Rule {
  double value;
  std::string caption;
};
struct LineChart {
  std::string title, description;  // for screen readers and tool tips
  Axis x, y;
  std::vector<Series> series;
  std::vector<Band> bands;
  std::vector<Rule> rules;
};
std::string draw(const LineChart& chart);

// ---- a matrix
struct Heatmap {
  std::string title, description;
  int64_t rows = 0, columns = 0;
  std::vector<double> values;  // [rows][columns]; what is not finite is hatched
  // Rising; a value's level is the number of edges that it reaches, and level 0 is left blank. Empty: even steps.
  std::vector<double> edges;
  std::string row_title, column_title;
  std::vector<std::string> row_labels, column_labels;  // none, or one each
  bool write_values = false, percent = false;          // the number in each cell
  std::vector<int64_t> marked_rows, marked_columns;    // ticks at the frame
  std::vector<int64_t> diagonals;                      // marked where they meet the frame: column - row
  std::vector<int32_t> row_colors;                     // none, or a category a row, shown beside it; -1: none
};
// More than 128 rows or columns without labels are pooled: each cell shows the largest of pooling(n)^2 values.
std::string draw(const Heatmap& map);
inline int64_t pooling(int64_t n) { return (n + 127) / 128; }
// What the colors of a heatmap's levels mean.
std::string draw_levels(const std::vector<double>& edges, const std::string& label, bool percent);

// ---- several pictures in a file of their own, which follows the reader's light or dark theme
struct Tile {
  std::string svg, title, caption;
};
// Tiles are `tile_width` pixels wide and at most `max_height` high; all pictures have one scale, at most 1, at which
// each fits into its tile.
std::string sheet(const std::string& title, const std::string& description, const std::vector<Tile>& tiles, int columns,
                  double tile_width = 290, double max_height = 330);

// ---- rows of small cells with text
struct Cell {
  std::string text, note{};                                // the note stands small below the text
  int color = -1;                                          // a category; -1: none
  enum Mark { plain, hidden, found, wrong } mark = plain;  // masked in the input; answered right there; answered wrong
  bool gap = false;                                        // before it
};
struct CellRow {
  std::string label;
  std::vector<Cell> cells;
  bool gap = false;  // above it
};
struct Cells {
  std::string title, description;
  std::vector<CellRow> rows;
};
std::string draw(const Cells& cells);

}  // namespace cairn::svg
