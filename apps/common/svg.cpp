#include "apps/common/svg.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <utility>

#include "apps/common/format.h"

namespace cairn::svg {
namespace {

constexpr double chart_width = 460, character = 7.2;  // a character's width, about

// A coordinate: at most two decimals, no trailing zeros.
std::string c(double value) {
  std::string result = formatted("%.2f", value);
  result.erase(result.find_last_not_of('0') + 1);
  if (result.back() == '.') result.pop_back();
  return result == "-0" ? "0" : result;
}

double width_of(const std::string& text) {
  // Continuation bytes of UTF-8 take no room.
  return character * double(std::count_if(text.begin(), text.end(), [](char ch) { return (ch & 0xC0) != 0x80; }));
}

// Text, characters and coordinates behind each other.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string result;
  const auto add = [&](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_arithmetic_v<Part> && !std::is_same_v<Part, char>)
      result += c(double(part));
    else
      result += part;
  };
  (add(parts), ...);
  return result;
}

// Collects elements; every coordinate is in the units of the view box.
struct Canvas {
  std::string out;

  void path(const std::string& d, const std::string& kind) {
    if (!d.empty()) out += cat("<path class=\"", kind, "\" d=\"", d, "\"/>");
  }
  void line(double x1, double y1, double x2, double y2, const char* kind) {
    path(cat('M', x1, ' ', y1, 'L', x2, ' ', y2), kind);
  }
  void rect(double x, double y, double w, double h, const std::string& kind) {
    out += cat("<rect class=\"", kind, "\" x=\"", x, "\" y=\"", y, "\" width=\"", w, "\" height=\"", h, "\"/>");
  }
  // anchor: start, middle, end.
  void text(double x, double y, const std::string& text, const char* anchor = "start", const std::string& kind = "") {
    if (text.empty()) return;
    out += cat("<text x=\"", x, "\" y=\"", y, '"');
    if (anchor[0] != 's') out += cat(" text-anchor=\"", anchor, '"');
    if (!kind.empty()) out += cat(" class=\"", kind, '"');
    out += cat('>', escape(text), "</text>");
  }
  // Circle, square, triangle or diamond, so that a series can be told without its color.
  void marker(double x, double y, int series, const std::string& kind) {
    static constexpr const char* shapes[] = {"m0 -5a5 5 0 1 1 -.01 0z", "m-4.5 -4.5h9v9h-9z", "m0 -6l6 10.5h-12z",
                                             "m0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z"};
    path(cat('M', x, ' ', y, shapes[series % 4]), kind);
  }

  // At least `minimum` pixels wide, whatever the container; at most `stretch` times its own size.
  std::string finish(double w, double h, const std::string& title, const std::string& description, double minimum = 0,
                     double stretch = 1.25) const {
    return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" role=\"img\" viewBox=\"0 0 ", w, ' ', h,
               "\" style=\"max-width:", w * stretch, "px;min-width:", minimum, "px\"><title>", escape(title),
               "</title>", description.empty() ? std::string() : cat("<desc>", escape(description), "</desc>"), out,
               "</svg>\n");
  }
};

// ---- axes

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

// The range of an axis over values, widened to something that has an extent.
Mapping fit(const Axis& axis, const std::vector<double>& values, double from, double to) {
  double low = INFINITY, high = -INFINITY;
  for (double value : values)
    if (std::isfinite(value) && (!axis.log || value > 0)) low = std::min(low, value), high = std::max(high, value);
  if (low > high) low = axis.log ? 1 : 0, high = axis.log ? 10 : 1;
  if (std::isfinite(axis.low)) low = axis.low;
  if (std::isfinite(axis.high)) high = axis.high;
  if (axis.log && low <= 0) low = high > 0 ? high / 10 : 1;
  if (!(low < high)) high = axis.log ? low * 10 : low + std::max(1.0, std::abs(low));
  if (axis.log) low = std::max(low, std::numeric_limits<double>::min());
  high = std::min(high, std::numeric_limits<double>::max());
  return {low, high, from, to, axis.log};
}

// Round numbers within a mapping's range: about `count` of them.
std::vector<double> ticks_of(const Axis& axis, const Mapping& map, double count) {
  if (!axis.ticks.empty()) return axis.ticks;
  std::vector<double> ticks;
  const auto add = [&](double tick) {
    const double slack = map.log ? 1e-9 * map.high : 1e-9 * (map.high - map.low);
    if (tick >= map.low * (map.log ? 1 - 1e-9 : 1) - (map.log ? 0 : slack) && tick <= map.high + slack)
      ticks.push_back(tick);
  };
  if (map.log) {
    constexpr double minimum = std::numeric_limits<double>::min(), maximum = std::numeric_limits<double>::max();
    const double from = std::log10(std::clamp(map.low, minimum, maximum)),
                 to = std::log10(std::clamp(map.high, minimum, maximum));
    const double decades = to - from;
    const int stride = int(std::ceil(std::clamp(decades / count, 1.0, 1000.0)));  // count may be 0
    const int first = int(std::floor(from)), last = int(std::ceil(to));
    for (int e = first; e <= last; ++e) {
      const double decade = std::pow(10, e);
      if ((e - first) % stride == 0) add(decade);
      if (decades < 2.5) add(2 * decade), add(5 * decade);
    }
    if (ticks.size() >= 2) return ticks;
    ticks.clear();
  }
  const double raw = (map.high - map.low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (double factor : {5.0, 2.0, 1.0})
    if (factor * power >= raw * 0.999) step = factor * power;
  const double first = std::ceil(map.low / step);
  for (int i = 0; i < 50 && (first + i) * step <= map.high + step / 2; ++i) add((first + i) * step);
  return ticks;
}

// Text positions pushed apart: at least `gap` between neighbors, none beyond [low, high].
void spread(std::vector<double>& at, double gap, double low, double high) {
  std::vector<size_t> order(at.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return at[a] < at[b]; });
  for (size_t i = 0; i < order.size(); ++i) at[order[i]] = std::max(at[order[i]], i ? at[order[i - 1]] + gap : low);
  for (size_t i = order.size(); i-- > 0;)
    at[order[i]] = std::min(at[order[i]], i + 1 < order.size() ? at[order[i + 1]] - gap : high);
}

// A ramp class for level 1..levels.
std::string ramp_class(int64_t level, int64_t levels) {
  const int64_t step = levels > 1 ? 1 + (level - 1) * (ramp - 1) / (levels - 1) : ramp;
  return cat('q', step);
}

}  // namespace

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
.picture .small{font-size:11px}.picture .halo{paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}
.picture .axis,.picture .grid,.picture .rule,.picture .tick{fill:none;stroke:var(--line)}.picture .axis{stroke:var(--soft)}
.picture .rule{stroke:var(--soft);stroke-dasharray:4 3}.picture .band{fill:var(--band)}
.picture .tick{stroke:var(--c1);stroke-width:2}.picture .diagonal{fill:none;stroke:var(--ink);stroke-width:1.5}
.picture .frame{fill:none;stroke:var(--line)}.picture .line{fill:none;stroke-width:2;stroke-linejoin:round}
.picture .faint{stroke-width:1;opacity:.35}.picture .cells{fill:none;shape-rendering:crispEdges}
.picture .odd{stroke:var(--soft);stroke-dasharray:.25 .25}.picture .on{fill:var(--surface)}
.picture .cell{fill:none;stroke:var(--line)}.picture .hidden{fill:var(--soft);stroke:none}.picture .found{fill:none;stroke:var(--c2);stroke-width:2}
.picture .wrong{fill:var(--bad);fill-opacity:.22;stroke:var(--bad)}.picture text.bad{fill:var(--bad);font-weight:700}
.picture .hollow{fill:var(--surface);stroke-width:2}.picture .dots{stroke-width:6;stroke-linecap:round}
)";
  for (int i = 0; i < colors; ++i)
    css += cat(".picture .s", i, "{stroke:var(--c", i, ")}.picture .f", i, "{fill:var(--c", i, ")}.picture .t", i,
               "{fill:var(--c", i, ");fill-opacity:.5}.picture .u", i, "{fill:var(--c", i, ");fill-opacity:.22}\n");
  for (int i = 1; i <= ramp; ++i)
    css += cat(".picture .q", i, "{stroke:var(--q", i, ")}.picture .bq", i, "{fill:var(--q", i, ")}\n");
  return css;
}

std::string escape(const std::string& text) {
  std::string result;
  for (char ch : text) switch (ch) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += static_cast<unsigned char>(ch) < 32 ? ' ' : ch;
    }
  return result;
}

std::string number(double value, bool percent) {
  if (std::isnan(value)) return "–";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  if (percent && value > 0.99 && value < 1)  // what is missing counts: 99.96% is not 100%
    return formatted("%.2f%%", std::min(99.99, 100 * value));
  if (percent) return number(100 * value) + "%";
  const double size = std::abs(value);
  const std::string sign = value < 0 ? "−" : "";
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return sign + formatted("%.3g", size);
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}})
    if (size >= 0.9999995 * unit) return sign + number(std::round(size / unit * 100) / 100) + name;
  if (size >= 999.5) {
    const long long whole = std::llround(size);
    return sign + formatted("%lld,%03lld", whole / 1000, whole % 1000);
  }
  // Three significant digits, written out.
  const int decimals = size == 0 ? 0 : std::clamp(2 - int(std::floor(std::log10(size))), 0, 7);
  std::string result = formatted("%.*f", decimals, size);
  if (result.find('.') != std::string::npos) {
    result.erase(result.find_last_not_of('0') + 1);
    if (result.back() == '.') result.pop_back();
  }
  return result == "0" ? result : sign + result;
}

// ---- lines

std::string draw(const LineChart& chart) {
  std::vector<double> xs, ys;
  double label_width = 0;
  for (const Series& s : chart.series) {
    const size_t n = std::min(s.x.size(), s.y.size());
    xs.insert(xs.end(), s.x.begin(), s.x.begin() + long(n)), ys.insert(ys.end(), s.y.begin(), s.y.begin() + long(n));
    label_width = std::max(label_width, width_of(s.name));
  }
  const bool empty = std::none_of(ys.begin(), ys.end(), [](double y) { return std::isfinite(y); });
  for (const Rule& rule : chart.rules) ys.push_back(rule.value);
  const double height = 290, left = 56, right = chart_width - 12 - (label_width > 0 ? label_width + 6 : 0), top = 30,
               bottom = height - 46;
  const Mapping x = fit(chart.x, xs, left, right), y = fit(chart.y, ys, bottom, top);

  Canvas canvas;
  for (const Band& band : chart.bands) {
    if (!x.has(band.low) || !x.has(band.high)) continue;
    const double from = std::clamp(x(band.low), left, right), to = std::clamp(x(band.high), left, right);
    canvas.rect(from, top, std::max(1.0, to - from), bottom - top, "band");
    const double half = width_of(band.caption) / 2;
    canvas.text(std::clamp((from + to) / 2, left + half, std::max(left + half, right - half)), top + 15, band.caption,
                "middle", "soft");
  }
  for (double tick : ticks_of(chart.y, y, 5)) {
    canvas.line(left, y(tick), right, y(tick), "grid");
    canvas.text(left - 7, y(tick) + 4.5, number(tick, chart.y.percent), "end", "soft");
  }
  for (double tick : ticks_of(chart.x, x, 5)) {
    canvas.line(x(tick), bottom, x(tick), bottom + 4, "axis");
    canvas.text(x(tick), bottom + 19, number(tick, chart.x.percent), "middle", "soft");
  }
  canvas.line(left, bottom, right, bottom, "axis");
  canvas.text(0, 13, chart.y.label, "start", "soft");
  canvas.text((left + right) / 2, height - 6, chart.x.label, "middle", "soft");

  std::vector<double> label_at;
  std::vector<const Series*> labeled;
  for (const Series& s : chart.series) {
    std::string d, dots;
    bool pen = false;
    double last = NAN;
    for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
      if (!x.has(s.x[i]) || !y.has(s.y[i])) {
        pen = false;
        continue;
      }
      last = std::clamp(y(s.y[i]), top, bottom);
      const std::string at = cat(x(s.x[i]), ' ', last);
      d += cat(pen ? 'L' : 'M', at);
      if (s.dots) dots += cat('M', at, "h.01");
      pen = true;
    }
    const std::string color = cat('s', s.color % colors);
    canvas.path(d, cat("line ", color, s.faint ? " faint" : ""));
    canvas.path(dots, cat("line dots ", color));
    if (!s.name.empty() && std::isfinite(last)) label_at.push_back(last), labeled.push_back(&s);
  }
  for (const Rule& rule : chart.rules) {
    if (!y.has(rule.value)) continue;
    canvas.line(left, y(rule.value), right, y(rule.value), "rule");
    canvas.text(right - 4, y(rule.value) - 5, rule.caption, "end", "soft small halo");
  }
  spread(label_at, 16, top, bottom);
  for (size_t i = 0; i < labeled.size(); ++i)
    canvas.text(right + 7, label_at[i] + 4.5, labeled[i]->name, "start", cat('f', labeled[i]->color % colors));
  if (empty) canvas.text((left + right) / 2, (top + bottom) / 2, "no data", "middle", "soft");
  return canvas.finish(chart_width, height, chart.title, chart.description);
}

// ---- dots

std::string draw(const DotChart& chart) {
  constexpr double pitch = 24;
  std::vector<double> values;
  double left = 0;
  for (const DotRow& row : chart.rows) {
    values.insert(values.end(), row.values.begin(), row.values.end());
    left = std::max(left, width_of(row.label) + 14);
  }
  for (const Rule& rule : chart.rules) values.push_back(rule.value);
  const double width = 520, right = width - 24;
  // The legend above wraps.
  double legend_x = left, legend_y = 14;
  Canvas canvas;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const double needed = width_of(chart.series[i]) + 40;
    if (legend_x > left && legend_x + needed > width) legend_x = left, legend_y += 20;
    canvas.marker(legend_x + 6, legend_y - 4.5, int(i), cat('f', i % colors));
    canvas.text(legend_x + 18, legend_y, chart.series[i]);
    legend_x += needed;
  }
  const double top = legend_y + 30, bottom = top + pitch * double(std::max<size_t>(1, chart.rows.size()));
  Mapping x = fit(chart.x, values, left, right);
  if (!std::isfinite(chart.x.high))  // room for the last dot
    x.high += x.log ? x.high * (std::pow(x.high / x.low, 0.06) - 1) : 0.06 * (x.high - x.low);
  for (double tick : ticks_of(chart.x, x, 6)) {
    canvas.line(x(tick), top, x(tick), bottom + 4, "grid");
    canvas.text(x(tick), bottom + 20, number(tick, chart.x.percent), "middle", "soft");
  }
  for (const Rule& rule : chart.rules) {
    if (!x.has(rule.value)) continue;
    canvas.line(x(rule.value), top - 4, x(rule.value), bottom, "rule");
    canvas.text(x(rule.value), top - 8, rule.caption, "middle", "soft small");
  }
  for (size_t r = 0; r < chart.rows.size(); ++r) {
    const double y = top + pitch * (double(r) + 0.5);
    canvas.text(0, y + 4.5, chart.rows[r].label);
    canvas.line(left, y, right, y, "grid");
    for (size_t i = 0; i < chart.rows[r].values.size(); ++i) {
      const double value = chart.rows[r].values[i];
      if (!std::isfinite(value)) continue;
      const bool below = value < x.low;
      if (!below && !x.has(value)) continue;
      canvas.marker(below ? left : std::min(x(value), right), y, int(i), cat(below ? "hollow s" : "f", i % colors));
    }
  }
  if (chart.rows.empty()) canvas.text((left + right) / 2, top + 16, "no data", "middle", "soft");
  canvas.text((left + right) / 2, bottom + 40, chart.x.label, "middle", "soft");
  return canvas.finish(width, bottom + 46, chart.title, chart.description, 340, 1.3);
}

// ---- heatmaps

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

}  // namespace

std::string draw(const Heatmap& given) {
  Heatmap map = given;
  map.rows = std::max<int64_t>(0, map.rows), map.columns = std::max<int64_t>(0, map.columns);
  map.values.resize(size_t(map.rows * map.columns), NAN);
  const bool labeled = !map.row_labels.empty() || !map.column_labels.empty() || map.write_values;
  if (const int64_t factor = pooling(std::max(map.rows, map.columns)); factor > 1 && !labeled)
    map = pooled(map, factor);
  if (map.edges.empty()) map.edges = even_edges(map.values);
  const auto levels = int64_t(map.edges.size());

  // Runs of one level in a row are one stroke, and all strokes of a level one path.
  std::vector<std::string> paths(size_t(levels + 1));
  std::string odd;
  const auto level_of = [&](int64_t r, int64_t col) {
    const double value = map.values[size_t(r * map.columns + col)];
    if (!std::isfinite(value)) return int64_t(-1);
    return int64_t(std::upper_bound(map.edges.begin(), map.edges.end(), value) - map.edges.begin());
  };
  for (int64_t r = 0; r < map.rows; ++r)
    for (int64_t col = 0, end; col < map.columns; col = end) {
      const int64_t level = level_of(r, col);
      for (end = col + 1; end < map.columns && level_of(r, end) == level;) ++end;
      if (level == 0) continue;
      (level < 0 ? odd : paths[size_t(level)]) += cat('M', col, ' ', r, 'h', end - col);
    }

  // Cells are as large as their text needs, or such that the map is 256 wide.
  double left = 10, top = 10 + (map.column_title.empty() ? 0 : 18);
  for (const std::string& label : map.row_labels) left = std::max(left, width_of(label) + 12);
  double labels_width = 0;
  for (const std::string& label : map.column_labels) labels_width = std::max(labels_width, width_of(label) + 10);
  if (!map.column_labels.empty()) top += 16;
  if (!map.row_title.empty()) left += 18;
  if (!map.row_colors.empty()) left += 10;
  const auto n = double(std::max<int64_t>(1, std::max(map.rows, map.columns)));
  const double cell_w = labeled ? std::max({map.percent ? 62.0 : 52.0, labels_width}) : 256 / n,
               cell_h = labeled ? 34 : 256 / n;
  const double w = cell_w * double(std::max<int64_t>(1, map.columns)),
               h = cell_h * double(std::max<int64_t>(1, map.rows));

  Canvas canvas;
  if (map.rows && map.columns) {
    canvas.out += cat("<g transform=\"translate(", left, ' ', top + cell_h / 2, ")scale(", cell_w, ' ', cell_h, ")\">");
    for (int64_t level = 1; level <= levels; ++level)
      canvas.path(paths[size_t(level)], cat("cells ", ramp_class(level, levels)));
    canvas.path(odd, "cells odd");
    canvas.out += "</g>";
  }
  canvas.rect(left, top, w, h, "frame");
  for (size_t i = 0; i < map.row_labels.size(); ++i)
    canvas.text(left - 7, top + cell_h * (double(i) + 0.5) + 4.5, map.row_labels[i], "end", "soft");
  for (size_t i = 0; i < map.column_labels.size(); ++i)
    canvas.text(left + cell_w * (double(i) + 0.5), top - 6, map.column_labels[i], "middle", "soft");
  canvas.text(left + w / 2, 13, map.column_title, "middle", "soft");
  if (!map.row_title.empty())
    canvas.out +=
        cat("<g transform=\"translate(13 ", top + h / 2, ")rotate(-90)\"><text class=\"soft\" text-anchor=\"middle\">",
            escape(map.row_title), "</text></g>");
  for (int64_t r = 0; map.write_values && r < map.rows; ++r)
    for (int64_t col = 0; col < map.columns; ++col)
      canvas.text(left + cell_w * (double(col) + 0.5), top + cell_h * (double(r) + 0.5) + 4.5,
                  number(map.values[size_t(r * map.columns + col)], map.percent), "middle",
                  level_of(r, col) * 2 > levels ? "on" : "");
  std::string ticks;
  for (int64_t r : map.marked_rows) ticks += cat('M', left - 7, ' ', top + cell_h * (double(r) + 0.5), "h5");
  for (int64_t col : map.marked_columns) ticks += cat('M', left + cell_w * (double(col) + 0.5), ' ', top - 7, "v5");
  canvas.path(ticks, "tick");
  std::string diagonals;
  for (int64_t d : map.diagonals) {
    const int64_t first = std::max<int64_t>(0, -d), end = std::min(map.rows, map.columns - d);
    if (first >= end) continue;
    diagonals += cat('M', left + cell_w * double(first + d), ' ', top + cell_h * double(first), "l-8 -8M",
                     left + cell_w * double(end + d), ' ', top + cell_h * double(end), "l8 8");
  }
  canvas.path(diagonals, "diagonal");
  // Runs of one color are one rectangle. Of rows that are pooled, the first counts.
  const auto color_rows = std::min(map.rows, int64_t(map.row_colors.size()));
  for (int64_t r = 0, end; r < color_rows; r = end) {
    const int32_t category = map.row_colors[size_t(r)];
    for (end = r + 1; end < color_rows && map.row_colors[size_t(end)] == category;) ++end;
    if (category >= 0)
      canvas.rect(left - 10, top + cell_h * double(r), 7, cell_h * double(end - r), cat('f', category % colors));
  }
  return canvas.finish(left + w + 10, top + h + 10, map.title, map.description);
}

// Width and height that the viewBox of a picture gives; zeros if it has none.
static std::pair<double, double> size_of(const std::string& picture) {
  constexpr std::string_view before = "viewBox=\"0 0 ";
  double width = 0, height = 0;
  if (const size_t at = picture.find(before); at != std::string::npos) {
    const char* end = picture.data() + picture.size();
    const char* space = std::from_chars(picture.data() + at + before.size(), end, width).ptr;
    if (space != end) std::from_chars(space + 1, end, height);
  }
  return {width, height};
}

std::string sheet(const std::string& title, const std::string& description, const std::vector<Tile>& tiles, int columns,
                  double tile_width, double max_height) {
  constexpr double top = 22, bottom = 32, right = 10;
  columns = std::max(1, columns);
  const int64_t rows = (int64_t(tiles.size()) + columns - 1) / columns;
  double scale = 1, highest = 0;
  for (const Tile& tile : tiles)
    if (const auto [width, height] = size_of(tile.svg); width > 0 && height > 0) {
      scale = std::min({scale, (tile_width - right) / width, (max_height - top - bottom) / height});
      highest = std::max(highest, height);
    }
  const double tile_height = top + scale * highest + bottom;
  Canvas canvas;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const size_t row = i / size_t(columns), column = i % size_t(columns);
    const double x = tile_width * double(column), y = tile_height * double(row);
    canvas.text(x + 10, y + 16, tiles[i].title);
    // A picture within a picture has a place and a size.
    std::string inner = tiles[i].svg;
    const auto [width, height] = size_of(inner);
    if (inner.rfind("<svg ", 0) == 0)
      inner.insert(
          5, cat("x=\"", x, "\" y=\"", y + top, "\" width=\"", width * scale, "\" height=\"", height * scale, "\" "));
    canvas.out += inner;
    canvas.text(x + 10, y + tile_height - 14, tiles[i].caption, "start", "soft");
  }
  const double w = tile_width * columns, h = tile_height * double(std::max<int64_t>(1, rows));
  std::string text = canvas.finish(w, h, title, description);
  text.insert(text.find('>') + 1,
              cat("<style>", style(), ".picture{font-family:system-ui,sans-serif}</style><rect width=\"", w,
                  "\" height=\"", h, "\" style=\"fill:var(--surface)\"/>"));
  return text;
}

std::string draw_levels(const std::vector<double>& edges, const std::string& label, bool percent) {
  constexpr double box = 46;
  Canvas canvas;
  canvas.text(0, 13, label, "start", "soft");
  const auto levels = int64_t(edges.size());
  for (int64_t level = 0; level <= levels; ++level) {
    const double x = 1 + box * double(level);
    if (level > 0) canvas.rect(x, 22, box, 14, cat("b", ramp_class(level, levels)));
    if (level > 0) canvas.text(x, 51, number(edges[size_t(level - 1)], percent), "middle", "soft small");
  }
  canvas.rect(1, 22, box * double(levels + 1), 14, "frame");
  const double width = std::max(box * double(levels + 1) + 20, width_of(label));
  return canvas.finish(width, 56, label, "", std::min(width, 320.0), 1);
}

// ---- cells

std::string draw(const Cells& cells) {
  constexpr double pitch = 19;
  double left = 0, width = 0, y = 1;
  for (const CellRow& row : cells.rows) left = std::max(left, row.label.empty() ? 0 : width_of(row.label) + 10);
  Canvas canvas;
  for (const CellRow& row : cells.rows) {
    const bool notes =
        std::any_of(row.cells.begin(), row.cells.end(), [](const Cell& cell) { return !cell.note.empty(); });
    const double tall = notes ? 30 : 20;
    if (row.gap) y += 10;
    canvas.text(0, y + tall / 2 + 4.5, row.label, "start", "soft");
    double x = left + 1;
    std::string texts;
    for (const Cell& cell : row.cells) {
      if (cell.gap) x += 6;
      static constexpr const char* kinds[] = {"cell", "hidden", "found", "wrong"};
      if (cell.color >= 0)
        canvas.rect(x, y, pitch - 1, tall, cat(cell.color / colors % 2 ? 'u' : 't', cell.color % colors));
      else if (cell.mark == Cell::hidden)
        canvas.rect(x, y, pitch - 1, tall, "hidden");
      if (cell.mark != Cell::hidden && (cell.mark != Cell::plain || cell.color < 0))
        canvas.rect(x + 0.5, y + 0.5, pitch - 2, tall - 1, kinds[cell.mark]);
      const double center = x + (pitch - 1) / 2;
      canvas.text(center, y + (notes ? 14 : tall / 2 + 4.5), cell.text, "middle",
                  cell.mark == Cell::wrong                      ? "bad"
                  : cell.mark == Cell::hidden && cell.color < 0 ? "on"
                                                                : "");
      canvas.text(center, y + tall - 4, cell.note, "middle", "soft small");
      x += pitch;
    }
    width = std::max(width, x);
    y += tall + 3;
  }
  return canvas.finish(std::max(width, 1.0), y, cells.title, cells.description, 0.72 * width);
}

}  // namespace cairn::svg
