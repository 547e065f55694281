#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "apps/common/svg.h"
#include "apps/common/svg_canvas.h"

namespace cairn::svg {
namespace {

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

// The lines, and where each series ends: its y, or NaN if it has no point.
std::vector<double> draw_series(Canvas& canvas, const std::vector<Series>& all, const Mapping& x, const Mapping& y) {
  std::vector<double> ends;
  for (const Series& s : all) {
    std::string d, dots;
    bool pen = false;
    double last = NAN;
    for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
      if (!x.has(s.x[i]) || !y.has(s.y[i])) {
        pen = false;
        continue;
      }
      last = std::clamp(y(s.y[i]), y.to, y.from);
      const std::string at = cat(x(s.x[i]), ' ', last);
      d += cat(pen ? 'L' : 'M', at);
      if (s.dots) dots += cat('M', at, "h.01");
      pen = true;
    }
    const std::string color = cat('s', s.color % colors);
    canvas.path(d, cat("line ", color, s.faint ? " faint" : ""));
    canvas.path(dots, cat("line dots ", color));
    ends.push_back(last);
  }
  return ends;
}

// The names of the series, each beside its end.
void write_names(Canvas& canvas, const std::vector<Series>& all, const std::vector<double>& ends, double at,
                 const Mapping& y) {
  std::vector<double> label_at;
  std::vector<const Series*> labeled;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].name.empty() && std::isfinite(ends[i])) label_at.push_back(ends[i]), labeled.push_back(&all[i]);
  spread(label_at, 16, y.to, y.from);
  for (size_t i = 0; i < labeled.size(); ++i)
    canvas.text(at, label_at[i] + 4.5, labeled[i]->name, "start", cat('f', labeled[i]->color % colors));
}

}  // namespace

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
  constexpr double width = 460, height = 290;
  const double left = 56, right = width - 12 - (label_width > 0 ? label_width + 6 : 0), top = 30, bottom = height - 46;
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

  const std::vector<double> ends = draw_series(canvas, chart.series, x, y);
  for (const Rule& rule : chart.rules) {
    if (!y.has(rule.value)) continue;
    canvas.line(left, y(rule.value), right, y(rule.value), "rule");
    canvas.text(right - 4, y(rule.value) - 5, rule.caption, "end", "soft small halo");
  }
  write_names(canvas, chart.series, ends, right + 7, y);
  if (empty) canvas.text((left + right) / 2, (top + bottom) / 2, "no data", "middle", "soft");
  return canvas.finish(width, height, chart.title, chart.description);
}

}  // namespace cairn::svg
