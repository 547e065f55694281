#include "apps/common/svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "apps/common/format.h"
#include "core/error.h"
#include "nn/io/json.h"

namespace cairn::svg {

std::string style() {
  std::string css =
      R"(:root{color-scheme:light dark;--surface:#fff;--panel:#f5f7f9;--ink:#1a222c;--soft:#566170;--line:#d5dbe2;--band:#f3ead6;
--c0:#0067a8;--c1:#b84a00;--c2:#00785a;--c3:#9a3c86;--c4:#8a6d00;--c5:#2b8ca3;--c6:#6a5acd;--c7:#7a7f87;--bad:#c02020;
--q1:#e1ecf7;--q2:#c5dbef;--q3:#a0c6e3;--q4:#74acd5;--q5:#4b91c4;--q6:#2d77b0;--q7:#175d96;--q8:#0b4376;--q9:#072b52}
@media(prefers-color-scheme:dark){:root{--surface:#14181d;--panel:#1c2229;--ink:#e6ebf1;--soft:#a3afbd;--line:#343d48;--band:#3a3320;
--c0:#62b5f0;--c1:#f59a55;--c2:#47cfa0;--c3:#e08fd0;--c4:#e3c54a;--c5:#74d3e8;--c6:#a99cf5;--c7:#9aa3ad;--bad:#ff7b72;
--q1:#1d2d3f;--q2:#234261;--q3:#2b5a86;--q4:#3573a8;--q5:#4a90c8;--q6:#6caede;--q7:#95caec;--q8:#c0e1f6;--q9:#edf7ff}}
.picture{display:block;width:100%;height:auto;overflow:visible}
.picture text{font-size:13px;fill:var(--ink);font-variant-numeric:tabular-nums}.picture .soft{fill:var(--soft)}
.picture .small{font-size:11px}.picture .axis,.picture .grid{fill:none;stroke:var(--line)}.picture .axis{stroke:var(--soft)}
.picture .band{fill:var(--band)}
.picture .frame{fill:none;stroke:var(--line)}.picture .line{fill:none;stroke-width:2;stroke-linejoin:round}
.picture .cells{fill:none;shape-rendering:crispEdges}
.picture .cell{fill:none;stroke:var(--line)}
.picture .hidden{fill:var(--soft)}.picture .hidden+text{fill:var(--surface)}.picture .found{fill:none;stroke:var(--c2);stroke-width:2}
.picture .wrong{fill:var(--bad);fill-opacity:.22;stroke:var(--bad)}.picture .wrong+text,.picture .bad{fill:var(--bad);font-weight:700}
.picture .dots{stroke-width:6;stroke-linecap:round}
.picture .dash1{stroke-dasharray:7 4}.picture .dash2{stroke-dasharray:2 3}
)";
  for (int i = 0; i < colors; ++i)
    css += concat(".picture .s", i, "{stroke:var(--c", i, ")}.picture .f", i, "{fill:var(--c", i, ")}.picture .t", i,
                  "{fill:var(--c", i, ");fill-opacity:.5}\n");
  for (int i = 1; i <= ramp; ++i)
    css += concat(".picture .q", i, "{stroke:var(--q", i, ")}.picture .bq", i, "{fill:var(--q", i, ")}",
                  i > ramp / 2 ? concat(".picture .bq", i, "+text{fill:var(--surface)}") : "", "\n");
  return css;
}

std::string escape(const std::string& text) {
  std::string result;
  for (char ch : as_utf8(text)) switch (ch) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default:
        result += static_cast<unsigned char>(ch) < 32 ? ' ' : ch;
        if (result.ends_with("\uFFFE") || result.ends_with("\uFFFF")) result.back() = '\xbd';  // U+FFFD
    }
  return result;
}

std::string number(double value, bool percent) {
  if (std::isnan(value)) return "–";
  if (value < 0) return "−" + number(-value, percent);
  if (std::isinf(value)) return "∞";
  if (percent && value > 0.99 && value < 1)  // what is missing counts: 99.96% is not 100%
    return formatted("%.2f%%", std::min(99.99, 100 * value));
  if (percent) return number(100 * value) + "%";
  if (value < 999.5 || value >= 1e15) return formatted("%.3g", std::abs(value));  // no -0
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}})
    if (value >= 0.9999995 * unit) return number(value / unit) + name;
  const long long whole = std::llround(value);
  return formatted("%lld,%03lld", whole / 1000, whole % 1000);
}

namespace {

// About as wide as the text, which is ASCII, is drawn.
double width_of(const std::string& text) { return 7.2 * double(text.size()); }

// How many of the rising edges a value reaches; NaN reaches none.
int64_t level_of(double value, const std::vector<double>& edges) {
  return std::isnan(value) ? 0 : std::upper_bound(edges.begin(), edges.end(), value) - edges.begin();
}

// The class of such a level, which is 1 at least.
std::string level_class(int64_t level, const std::vector<double>& edges) {
  const auto levels = int64_t(edges.size());
  return concat('q', levels > 1 ? 1 + (level - 1) * (ramp - 1) / (levels - 1) : ramp);
}

// Collects elements; every coordinate is in the units of the view box.
struct Canvas {
  std::string out;

  void path(const std::string& d, const std::string& kind) {
    if (!d.empty()) out += concat("<path class=\"", kind, "\" d=\"", d, "\"/>");
  }
  void line(double x1, double y1, double x2, double y2, const char* kind) {
    path(concat('M', x1, ' ', y1, 'L', x2, ' ', y2), kind);
  }
  void rect(double x, double y, double w, double h, const std::string& kind) {
    out += concat("<rect class=\"", kind, "\" x=\"", x, "\" y=\"", y, "\" width=\"", w, "\" height=\"", h, "\"/>");
  }
  // anchor: start, middle, end.
  void text(double x, double y, const std::string& text, const char* anchor = "start", const std::string& kind = "") {
    if (text.empty()) return;
    out += concat("<text x=\"", x, "\" y=\"", y, '"');
    if (anchor[0] != 's') out += concat(" text-anchor=\"", anchor, '"');
    if (!kind.empty()) out += concat(" class=\"", kind, '"');
    out += concat('>', escape(text), "</text>");
  }
  // The picture. At least `minimum` pixels wide, whatever the container; at most a quarter larger than its own size.
  std::string finish(double w, double h, const std::string& title, const std::string& description,
                     double minimum = 0) const {
    return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" role=\"img\" viewBox=\"0 0 ", w, ' ', h,
                  "\" style=\"max-width:", 1.25 * w, "px;min-width:", minimum, "px\"><title>", escape(title),
                  "</title>", description.empty() ? "" : "<desc>" + escape(description) + "</desc>", out, "</svg>\n");
  }
};

// ---- lines over x

// From data to a length.
struct Mapping {
  double low, high, from, to;
  bool log;

  bool has(double value) const { return std::isfinite(value) && (!log || value > 0); }
  double operator()(double value) const {
    const double at =
        log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))  // a ratio may overflow
            : (value - low) / (high - low);
    return from + std::clamp(at, -0.5, 1.5) * (to - from);
  }
};

// The range of an axis over the values of all series, widened to something that has an extent.
Mapping fit(const Axis& axis, const std::vector<Series>& all, std::vector<double> Series::*values, double from,
            double to) {
  Mapping map{INFINITY, -INFINITY, from, to, axis.log};
  for (const Series& series : all)
    for (double value : series.*values)
      if (map.has(value)) {
        map.low = std::min(map.low, value);
        map.high = std::max(map.high, value);
      }
  if (std::isfinite(axis.low)) map.low = axis.low;
  if (std::isfinite(axis.high)) map.high = axis.high;
  if (map.low > map.high) return {1, 10, from, to, axis.log};  // no data
  if (map.low == map.high) map.high = axis.log ? map.low * 10 : map.low + std::max(1.0, std::abs(map.low));
  return map;
}

// Round numbers within a mapping's range: some five of them.
std::vector<double> ticks_of(const Mapping& map) {
  std::vector<double> ticks;
  if (map.log) {
    const int first = int(std::floor(std::log10(map.low))), last = int(std::ceil(std::log10(map.high)));
    const std::vector<int> factors = last - first > 3 ? std::vector{1} : std::vector{1, 2, 5};
    for (int e = first; e <= last; e += 1 + (last - first) / 6)
      for (const int factor : factors) {
        const double tick = factor * std::pow(10, e);
        if (map.low <= tick && tick <= map.high) ticks.push_back(tick);
      }
    if (ticks.size() >= 2) return ticks;
    ticks.clear();
  }
  const double raw = (map.high - map.low) / 5;
  double step = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {2.0, 2.5, 2.0})  // 1, 2, 5 or 10 times a power of ten
    if (step < raw * 0.999) step *= factor;
  const double first = std::ceil(map.low / step);
  for (int i = 0; i < 10 && (first + i) * step <= map.high + step / 1000; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

// Draws the line; where it ends: the y of its last point, or NaN if it has none.
double draw_series(Canvas& canvas, const Series& series, const Mapping& x, const Mapping& y) {
  std::string line, dots;
  bool pen = false;
  double last = NAN;
  for (size_t i = 0; i < series.x.size(); ++i) {
    const bool is_point = x.has(series.x[i]) && y.has(series.y[i]);
    if (is_point) {
      last = y(series.y[i]);
      const std::string at = concat(x(series.x[i]), ' ', last);
      line += (pen ? 'L' : 'M') + at;
      if (series.dots) dots += 'M' + at + "h.01";
    }
    pen = is_point;
  }
  const std::string color = concat('s', series.color % colors);
  canvas.path(line, concat("line ", color, series.dash > 0 ? concat(" dash", series.dash) : ""));
  canvas.path(dots, concat("line dots ", color));
  return last;
}

}  // namespace

std::string draw(const LineChart& chart) {
  double label_width = 0;
  for (const Series& series : chart.series) label_width = std::max(label_width, width_of(series.name));
  constexpr double width = 460, height = 290, left = 56, top = 30, bottom = height - 46;
  const double right = width - 24 - (label_width > 0 ? label_width + 6 : 0);
  const Mapping x = fit(chart.x, chart.series, &Series::x, left, right);
  const Mapping y = fit(chart.y, chart.series, &Series::y, bottom, top);

  Canvas canvas;
  for (const Mark& band : chart.bands) {
    canvas.rect(x(band.begin), top, std::max(1.0, x(band.end) - x(band.begin)), bottom - top, "band");
    canvas.text((x(band.begin) + x(band.end)) / 2, top + 15, band.text, "middle", "soft");
  }
  for (double tick : ticks_of(y)) {
    canvas.line(left, y(tick), right, y(tick), "grid");
    canvas.text(left - 7, y(tick) + 4.5, number(tick, chart.y.percent), "end", "soft");
  }
  for (double tick : ticks_of(x)) {
    canvas.line(x(tick), bottom, x(tick), bottom + 4, "axis");
    canvas.text(x(tick), bottom + 19, number(tick, chart.x.percent), "middle", "soft");
  }
  canvas.line(left, bottom, right, bottom, "axis");
  canvas.text(0, 13, chart.y.label, "start", "soft");
  canvas.text((left + right) / 2, height - 6, chart.x.label, "middle", "soft");

  std::multimap<double, const Series*> by_end;  // from the highest line to the lowest
  for (const Series& series : chart.series)
    if (const double end = draw_series(canvas, series, x, y); !std::isnan(end)) by_end.emplace(end, &series);
  if (by_end.empty()) canvas.text((left + right) / 2, (top + bottom) / 2, "no data", "middle", "soft");
  // Each name is beside the end of its line, or above the name below it where lines end close to each other.
  double below = INFINITY;
  for (auto it = by_end.rbegin(); it != by_end.rend(); ++it) {
    const Series& series = *it->second;
    if (!series.name.empty()) below = std::min(it->first, below - 16);
    canvas.text(right + 7, below + 4.5, series.name, "start", concat('f', series.color % colors));
  }
  return canvas.finish(width, height, chart.title, chart.description);
}

// ---- a matrix

void Heatmap::add(int64_t row, const float* row_values, int64_t count) {
  float* const cells = values.data() + row / row_step * columns;
  for (int64_t i = 0; i < count; ++i) {
    float& largest = cells[i / column_step];
    largest = std::fmax(largest, row_values[i]);  // NaN only where all are
  }
}

namespace {

// Class and style of a category. Neighboring ones are far apart on the color wheel, for both themes.
std::string hue_of(size_t category) {
  return formatted("cells\" style=\"stroke:hsl(%.0f 60%% %zu%%)", std::fmod(137.5 * double(category), 360),
                   42 + 14 * (category % 3));
}

// Draws the cells and a frame. Runs of one level in a row are one stroke, and all strokes of a level one path.
void draw_cells(Canvas& canvas, const Heatmap& map, double left, double top, double cell) {
  std::vector<std::string> paths(size_t(map.categories) + map.edges.size() + 1);
  const auto level_at = [&](int64_t r, int64_t col) {
    const double value = double(map.values[size_t(r * map.columns + col)]);
    return map.categories > 0 ? int64_t(std::fmax(value, -1)) + 1 : level_of(value, map.edges);
  };
  for (int64_t r = 0; r < map.rows; ++r)
    for (int64_t col = 0, end; col < map.columns; col = end) {
      const int64_t level = level_at(r, col);
      for (end = col + 1; end < map.columns && level_at(r, end) == level;) ++end;
      paths[size_t(level)] += concat('M', col, ' ', r, 'h', end - col);
    }
  canvas.out += concat("<g transform=\"translate(", left, ' ', top + cell / 2, ")scale(", cell, ")\">");
  for (size_t level = 1; level < paths.size(); ++level)
    canvas.path(paths[level],
                map.categories > 0 ? hue_of(level - 1) : "cells " + level_class(int64_t(level), map.edges));
  canvas.out += "</g>";
  canvas.rect(left, top, cell * double(map.columns), cell * double(map.rows), "frame");
}

}  // namespace

std::string draw(const Heatmap& map) {
  Canvas canvas;
  const double cell = 256.0 / double(std::max<int64_t>(1, std::max(map.rows, map.columns)));
  const double left = map.row_colors.empty() ? 1 : 11;
  draw_cells(canvas, map, left, 1, cell);
  // Runs of one category are one rectangle.
  const size_t rows = map.row_colors.size();
  for (size_t r = 0, end; r < rows; r = end) {
    const int32_t category = map.row_colors[r];
    for (end = r + 1; end < rows && map.row_colors[end] == category;) ++end;
    if (category >= 0) canvas.rect(1, 1 + cell * double(r), 7, cell * double(end - r), concat('f', category % colors));
  }
  const double width = cell * double(map.columns), height = cell * double(map.rows);
  return canvas.finish(left + width + 1, height + 2, map.title, "");
}

// ---- a matrix over x

namespace {

// Writes texts at the middle of their ranges, in two rows in turn, so that neighbors do not overlap. A bracket at `y`
// shows the range. away: -1: the texts are above y, 1: below.
void draw_marks(Canvas& canvas, const std::vector<Mark>& marks, const Mapping& x, double y, double away) {
  std::string brackets;
  for (size_t i = 0; i < marks.size(); ++i) {
    const double begin = x(marks[i].begin), end = x(marks[i].end);
    canvas.text((begin + end) / 2, y + away * (i % 2 == 0 ? 12 : 26) + 4, marks[i].text, "middle",
                marks[i].wrong ? "small bad" : "small");
    brackets += concat('M', begin + 0.5, ' ', y, 'v', 4 * away, 'H', end - 0.5, 'v', -4 * away);
  }
  canvas.path(brackets, "axis");
}

}  // namespace

std::string draw(const Strip& strip) {
  constexpr double marks = 36, lines = 44, gap = 8;
  constexpr double cell = 2.5, left = 76;
  Canvas canvas;
  const double right = left + cell * double(strip.map.columns), bottom = marks + cell * double(strip.map.rows);
  const double base = bottom + gap + lines, height = base + marks + 22;
  const Mapping x{strip.x.low, strip.x.high, left, right, false}, y{0, 1, base, base - lines, false};
  draw_cells(canvas, strip.map, left, marks, cell);
  canvas.line(left, base - lines, right, base - lines, "grid");
  canvas.line(left, base, right, base, "axis");
  for (const Series& series : strip.lines) draw_series(canvas, series, x, y);
  draw_marks(canvas, strip.above, x, marks - 3, -1);
  draw_marks(canvas, strip.below, x, base + 3, 1);
  for (double tick : ticks_of(x)) canvas.text(x(tick), height - 6, number(tick), "middle", "soft");
  const auto label = [&](double at, const std::string& text) { canvas.text(0, at, text, "start", "soft"); };
  label(marks - 11, strip.above_label);
  label((marks + bottom) / 2 + 4, strip.map_label);
  label(base - lines / 2 + 4, strip.lines_label);
  label(base + 19, strip.below_label);
  label(height - 6, strip.x.label);
  return canvas.finish(right + 10, height, strip.map.title, "", 0.9 * right);
}

// ---- rows of cells

std::string category(int number) { return number < 0 ? "cell" : concat('t', number % colors); }

std::string level(double value, const std::vector<double>& edges) {
  const int64_t reached = level_of(value, edges);
  return reached > 0 ? concat('b', level_class(reached, edges)) : "cell";
}

std::string draw(const Cells& cells) {
  double left = 0, width = 1, y = 1;
  for (const CellRow& row : cells.rows) left = std::max(left, row.label.empty() ? 0 : width_of(row.label) + 10);
  Canvas canvas;
  for (const CellRow& row : cells.rows) {
    const bool notes =
        std::any_of(row.cells.begin(), row.cells.end(), [](const Cell& cell) { return !cell.note.empty(); });
    const double tall = notes ? 30 : 20;
    if (row.gap) y += 10;
    canvas.text(0, y + tall / 2 + 4.5, row.label, "start", "soft");
    double x = left + 1;
    for (const Cell& cell : row.cells) {
      const double center = x + cells.pitch / 2 - 0.5;
      if (!cell.kind.empty()) canvas.rect(x + 0.5, y + 0.5, cells.pitch - 2, tall - 1, cell.kind);
      canvas.text(center, y + (notes ? 14 : tall / 2 + 4.5), cell.text, "middle");
      canvas.text(center, y + tall - 4, cell.note, "middle", "soft small");
      x += cells.pitch;
    }
    width = std::max(width, x);
    y += tall + 3;
  }
  return canvas.finish(width, y, cells.title, cells.description, 0.72 * width);
}

// ---- several pictures

std::string sheet(const std::string& title, const std::string& description, const std::vector<Picture>& pictures,
                  int columns, double picture_width, double picture_height) {
  constexpr double bottom = 32, side = 10;
  columns = std::max(1, std::min(columns, int(pictures.size())));
  const int rows = std::max(1, (int(pictures.size()) + columns - 1) / columns);
  Canvas canvas;
  for (int i = 0; i < int(pictures.size()); ++i) {
    const int row = i / columns, column = i % columns;
    const double x = picture_width * column + side, y = picture_height * row + side;
    // A picture within a picture has a place and a size, into which it fits itself.
    std::string picture = pictures[size_t(i)].svg;
    const std::string page_class = " class=\"picture\"";
    picture.replace(picture.find(page_class), page_class.size(),
                    concat(" x=\"", x, "\" y=\"", y, "\" width=\"", picture_width - 2 * side, "\" height=\"",
                           picture_height - side - bottom, "\" preserveAspectRatio=\"xMinYMin\""));
    canvas.out += picture;
    canvas.text(x, y + picture_height - side - 14, pictures[size_t(i)].caption);
  }
  const double width = picture_width * columns, height = picture_height * rows;
  std::string text = canvas.finish(width, height, title, description);
  text.insert(text.find('>') + 1,
              concat("<style>", style(), ".picture{font-family:system-ui,sans-serif}</style><rect width=\"", width,
                     "\" height=\"", height, "\" style=\"fill:var(--surface)\"/>"));
  return text;
}

}  // namespace cairn::svg
