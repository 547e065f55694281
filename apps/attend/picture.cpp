#include "apps/attend/picture.h"

#include <cmath>

#include "apps/common/svg.h"

namespace cairn::attend {

std::string draw_panels(const std::vector<Panel>& panels, int64_t queries, int64_t keys, const std::string& other) {
  std::vector<svg::Tile> tiles;
  for (const Panel& panel : panels) {
    svg::Heatmap map;
    map.title = "Attention weights of " + panel.spec;
    map.rows = queries, map.columns = keys;
    map.values = panel.weights;
    // Half as much as even attention and more: powers of two, to a weight of 1.
    const double even = keys > 0 ? 1 / double(keys) : 1;
    for (double edge = 0.5 * even; edge < 1 && map.edges.size() < size_t(svg::ramp); edge *= 2)
      map.edges.push_back(edge);
    map.row_colors = panel.labels;
    map.row_colors.resize(size_t(queries), -1);  // so that all panels are of one size
    tiles.push_back(
        {svg::draw(map), panel.spec, std::isnan(panel.l1) ? "" : "L1 to " + other + " " + svg::number(panel.l1)});
  }
  return svg::sheet(concat("Attention weights of ", panels.size(), " variants"),
                    "A row for each query, a column for each key; darker is more, in powers of two from half of even "
                    "attention on. The strip at the left has a color for each cluster.",
                    tiles, panels.size() < 4 ? int(panels.size()) : 4);
}

}  // namespace cairn::attend
