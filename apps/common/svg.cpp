#include "apps/common/svg.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "apps/common/format.h"
#include "apps/common/svg_canvas.h"

namespace cairn::svg {

std::string coordinate(double value) {
  std::string result = formatted("%.2f", value);
  result.erase(result.find_last_not_of('0') + 1);
  if (result.back() == '.') result.pop_back();
  return result == "-0" ? "0" : result;
}

double width_of(const std::string& text) {
  // Continuation bytes of UTF-8 take no room.
  constexpr double character = 7.2;
  return character * double(std::count_if(text.begin(), text.end(), [](char ch) { return (ch & 0xC0) != 0x80; }));
}

std::string ramp_class(int64_t level, int64_t levels) {
  const int64_t step = levels > 1 ? 1 + (level - 1) * (ramp - 1) / (levels - 1) : ramp;
  return cat('q', step);
}

std::string Canvas::finish(double w, double h, const std::string& title, const std::string& description, double minimum,
                           double stretch) const {
  return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" role=\"img\" viewBox=\"0 0 ", w, ' ', h,
             "\" style=\"max-width:", w * stretch, "px;min-width:", minimum, "px\"><title>", escape(title), "</title>",
             description.empty() ? std::string() : cat("<desc>", escape(description), "</desc>"), out, "</svg>\n");
}
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
.picture .dots{stroke-width:6;stroke-linecap:round}
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
