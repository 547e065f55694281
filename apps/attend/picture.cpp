#include "apps/attend/picture.h"

#include <cmath>

#include "apps/common/svg.h"

namespace cairn::attend {

Panel panel_of(const Inputs& inputs, const Runner& runner, const std::string& spec, const AttentionChoices& made,
               int64_t head, const std::vector<double>& others) {
  Panel panel{spec, dense_weights(inputs, runner, 0, head), {}, NAN};
  double sum = 0;
  for (size_t i = 0; i < others.size(); ++i) sum += std::abs(panel.weights[i] - others[i]);
  const int64_t rows =
      inputs.mask.query_lengths.defined() ? inputs.mask.query_lengths.data<int32_t>()[0] : inputs.queries();
  if (rows > 0) panel.l1 = sum / double(rows);
  // Which cluster or (in its first round) bucket each query is in.
  const Tensor groups = made["labels"].defined() ? made["labels"] : made["buckets"];
  if (groups.defined()) {
    const auto all = groups.to_vector<int32_t>();
    const int64_t N = inputs.queries(), rounds = groups.rank() == 4 ? groups.size(2) : 1;
    const auto first = all.begin() + head * rounds * N;
    panel.labels.assign(first, first + N);
  }
  return panel;
}

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
